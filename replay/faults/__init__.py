"""Faults to apply to a recorded stream, and the places where they happen."""
