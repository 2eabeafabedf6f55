"""The house itself under test: imports, layout, exports, packaging, and what may lie where."""
