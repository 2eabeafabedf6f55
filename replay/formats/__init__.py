"""Recordings of others and for others: one file a format, each a pure function that says what it loses"""

__all__: list[str] = []
