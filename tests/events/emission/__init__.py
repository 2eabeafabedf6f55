"""Tests of the engine that no dialect may know of."""
