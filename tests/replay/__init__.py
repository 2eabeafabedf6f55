"""Tests of replay/, one file a source file."""
