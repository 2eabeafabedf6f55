"""Real upstreams and real clients with Wiretape between them: `make test-real` runs it, the default suite does not."""
