"""Workers: several processes that share a port."""
