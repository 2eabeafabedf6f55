"""An HTTP/1.1 server: listening sockets to strict ASGI requests, with deadlines.

`server` accepts, `connection` reads a client's requests one after the other and has ASGI's receive and send for each,
and `request_head` parses their heads strictly. The relay sees `asgi`, the interface and the one task for all
deadlines, and the exchange of its request.
"""
