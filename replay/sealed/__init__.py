"""Sealed tapes: the reviewed file format for git."""
