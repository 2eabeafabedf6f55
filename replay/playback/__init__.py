"""Play recorded streams: scripts, player, server and httpx transport.

`script` also turns the records of a stream into a script, which `server` plays on a socket and `transport` in process.
"""
