"""An httpx transport over trio: pool, connections, TLS, HTTP/1.1 and decompression.

`transport` is the door. `connect` opens streams (`names`, `tls`, egress proxy), `pool` keeps idle connections,
`connection` sends a request on one, `exchange` is HTTP/1.1 without I/O, and `body` gives out a response read by read.
"""
