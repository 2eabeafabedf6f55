"""The error tree: who is at fault, and nothing that an upstream sends.

Upstream data never raises (law L4): it becomes frames, events, a flag or a reported damage.
"""

__all__ = ["LocalError", "TapeError", "WiretapeError"]


class WiretapeError(Exception):
    """Root of what this package raises."""


class LocalError(WiretapeError):
    """A bug in our own code, never caused by data: a decoder fed after its end, a record after `end`."""


class TapeError(WiretapeError):
    """A tape that this version must refuse, such as a newer format; mere damage is reported, not raised."""
