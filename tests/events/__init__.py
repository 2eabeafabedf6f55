"""The pure core, one test file for one source file."""
