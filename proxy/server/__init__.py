"""HTTP/1.1 server: listening sockets to strict ASGI requests, with deadlines."""
