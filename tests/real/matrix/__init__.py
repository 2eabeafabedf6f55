"""The cut matrix and the lifecycle matrix: `python -m tests.real.matrix` writes docs/internals/compatibility.md."""
