"""Crossing: requests and streams between dialects."""
