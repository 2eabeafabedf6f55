"""Rename values that change from one recording to the next: ids, times, fingerprints."""
