"""Any client in front of any upstream: one neutral request, and one stream of events between two dialects.

Nothing here knows a dialect. Each dialect reads its requests into the neutral one and writes them from it (`ask.py`),
and makes its frames from events (`compose.py`).
"""
