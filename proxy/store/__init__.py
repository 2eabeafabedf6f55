"""Tape storage: memory and files, durability, recovery, retention and the catalogue."""
