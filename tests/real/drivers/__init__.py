"""Programs that ask one question with one real client: a line of JSON in, a line of JSON out (lines.py says which)."""
