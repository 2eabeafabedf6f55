"""Benchmarks of the core, the proxy and the upstream side; they write docs/internals/benchmarks.md."""
