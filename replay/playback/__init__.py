"""Play recorded streams: scripts, player, server and httpx transport."""
