"""Chat completions, one test file for one source file."""
