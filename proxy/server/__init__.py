"""An HTTP/1.1 server: listening sockets to strict ASGI requests, with deadlines.

`server` accepts, `connection` reads requests one after the other, `request_head` parses their heads strictly,
`exchange` is the client's socket with ASGI's receive and send for one request, and `reaper` is the one task for all
deadlines. The relay sees `asgi` and `reaper` only.
"""
