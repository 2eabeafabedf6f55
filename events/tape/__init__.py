"""Tape records, their lines on disk, and the way back to the upstream's reads."""
