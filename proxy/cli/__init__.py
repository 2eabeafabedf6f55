"""The command line: one module for each group of verbs, joined in `main`."""
