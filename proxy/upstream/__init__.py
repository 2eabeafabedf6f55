"""The way to upstreams over trio: pool, connections, TLS, HTTP/1.1 and decompression.

`transport` is the door and has the pool of idle connections. `connect` opens streams (name look-up, egress proxy,
`tls`), and `connection` sends a request on one and reads its response.
"""
