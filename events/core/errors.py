"""The error tree: who is at fault, and nothing that an upstream sends.

    WiretapeError
    ├── LocalError        we (or a caller of ours) broke a contract: a bug, never caused by data
    └── TapeError         a tape cannot be used at all (mere damage is reported, not raised)

Upstream data never raises (law L4): it becomes frames, events, a flag or a reported damage.
"""

__all__ = ["LocalError", "TapeError", "WiretapeError"]


class WiretapeError(Exception):
    """Root of what this package raises."""


class LocalError(WiretapeError):
    """A dead machine was fed, a record was written after `end`: our own bug, with the state named."""


class TapeError(WiretapeError):
    """A tape that this version must refuse, such as a newer incompatible format."""
