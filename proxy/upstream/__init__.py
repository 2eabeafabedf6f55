"""HTTP/1.1 client side: pool, connections, TLS and decompression behind an httpx transport."""
