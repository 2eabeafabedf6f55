"""Find the recorded stream that answers a request."""
