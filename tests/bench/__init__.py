"""The speed of the core alone, with its bars: `make bench` writes docs/benchmarks.md."""
