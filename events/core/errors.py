"""The error tree: who is at fault, and nothing that an upstream sends.

Upstream data never raises (law L4): it becomes frames, events, a flag or a reported damage.
"""

__all__ = ["LocalError", "RequestError", "TapeError", "WiretapeError"]


class WiretapeError(Exception):
    """Root of what this package raises."""


class LocalError(WiretapeError):
    """A bug in our own code, never caused by data: a decoder fed after its end, a record after `end`."""


class TapeError(WiretapeError):
    """A tape that this version must refuse, such as a newer format; mere damage is reported, not raised."""


class RequestError(WiretapeError):
    """A request that cannot be sent to an upstream of another dialect: the client's fault, HTTP 400."""

    def __init__(self, param: str, message: str, code: str = "invalid_parameter") -> None:
        super().__init__(message)
        #: Where in the request, such as `input[3].type`.
        self.param = param
        self.message = message
        self.code = code
