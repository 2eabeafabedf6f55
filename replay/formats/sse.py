"""Raw event streams, as `curl -N` or a log has them: the bytes of an answer and nothing else"""

from collections.abc import Sequence

from wiretape.events.emission.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads

from ..compare.bytes import last_attempt
from .imported import Imported, Outcome, frames_of, guessed_target, outcome
from .losses import Loss

__all__ = ["from_sse", "to_sse"]

_NEVER_THERE = ("boundaries", "ending", "request", "status", "time", "times")


def from_sse(data: bytes) -> Outcome:
    """One stream."""
    one = Imported(target=guessed_target(data), reads=frames_of(data))
    return outcome("sse", data, [one], map(Loss, _NEVER_THERE))


def to_sse(records: Sequence[Record], *, client: bool = False) -> tuple[bytes, list[Loss]]:
    """The bytes of the upstream; or those that the client got."""
    lost = ["ending", "headers", "request", "settings", "status", "time", "times", "boundaries", "client"]
    if sum(record.kind == "attempt" for record in records) > 1:
        lost.append("attempts")
    if client:
        lost.append("merged")
        return emit(records), [Loss(code) for code in sorted(lost)]
    return b"".join(part for _, part in reads(last_attempt(records))), [Loss(code) for code in sorted(lost)]
