"""What an end, a fault or an answer of an upstream amounts to: a cause for the tape, or a failure to decide about"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from wiretape.events.core.model import UpstreamError

from ..upstream.errors import RefusedError, WireError
from .attempts import Failure, in_band, refuses_streaming
from .upstream_response import Asked

__all__ = [
    "CAUSE_OF",
    "OUR_CAUSES",
    "WHOLE",
    "chat_cause",
    "failed",
    "in_stream",
    "no_answer",
    "unusable",
]

#: Of an ending that a fault or a failure leads to.
CAUSE_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "reset": "reset",
        "protocol": "protocol",
        "stalled": "stalled",
        "truncated": "eof",
        "refused": "refused",
        "limit": "limit",
        "upstream_error": "closed",  # told in the stream, after which we hang up
    }
)

#: After these the answer is whole, or what is to be said instead of its rest was said.
WHOLE: Final = frozenset({"framed", "closed", "status", "upload", "slow_upload"})
#: What ends a stream on our side of it, with an answer of ours where none was given yet.
OUR_CAUSES: Final = frozenset({"shutdown", "internal", "upload", "slow_upload"})

_SAID: Final[Mapping[str, str]] = MappingProxyType(
    {
        "truncated": "the upstream ended its answer before anything of it had come",
        "reset": "the upstream dropped the connection",
        "protocol": "the upstream did not answer with a stream",
        "limit": "the upstream's answer goes beyond a limit",
        "stalled": "the upstream fell silent",
    }
)


def chat_cause(cause: str) -> str:
    """A whole body has its end by its framing; for a chat stream that end alone says nothing (L5)."""
    return "eof" if cause == "framed" else cause


def no_answer(fault: WireError) -> Failure:
    """No head came."""
    refused = fault.cause if isinstance(fault, RefusedError) else ""
    return Failure(ending=fault.ending, message=str(fault), transient=refused != "tls", timed_out=refused == "timeout")


def failed(answered: Asked, *, streams: bool, agent: bool = False) -> Failure:
    """The status says so; of an agent's run its own header."""
    return Failure(
        ending="upstream_error",
        message=f"the upstream answered {answered.status}",
        status=answered.status,
        answered=True,
        retry_after=answered.header(b"retry-after"),
        unstreamed=streams and refuses_streaming(answered.status, answered.kept()),
        final=agent and answered.header(b"x-hermes-completed") == "false",
    )


def in_stream(error: UpstreamError) -> Failure:
    """The stream says so."""
    code, transient = in_band(error.message, error.code)
    return Failure(ending="upstream_error", message=error.message, status=code, transient=transient)


def unusable(ending: str, fault: WireError | None) -> Failure:
    """Its bytes ended before they said anything."""
    message = str(fault) if fault is not None else _SAID.get(ending, "the upstream's answer was not usable")
    return Failure(ending=ending, message=message)
