"""What a format cannot say, by name, and in words; docs/formats.md is drawn from it"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["LOSSES", "Loss"]

#: Nothing that is lost in one of our own readers or writers lacks a name here (asserted in `Loss.text`).
LOSSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attempts": "earlier attempts: only the one that answered is there",
        "body": "the body of an answer: nothing of it was kept",
        "boundaries": "where reads ended: each frame is made one read",
        "bytes": "the bytes: what the answer came to was kept, and is written as a stream again",
        "client": "what its client got and when: status, keepalives, leaving",
        "coding": "the compressed bytes: what they decode to is there",
        "ending": "how the connection ended: it is taken for an orderly end",
        "faults": "authored faults and delays: `wiretape cut` and `replay --fault` make them from a tape",
        "framing": "how each payload was framed, comments, `[DONE]`: a plain `data:` frame is made of each line",
        "headers": "headers but those that a tape keeps",
        "headless": "a stream to which nothing was answered: its entry has status 0, and `import` leaves it out",
        "json": "how JSON was written: it is written anew, without spaces",
        "merged": "what the client got is no longer what the upstream sent",
        "one_read": "where reads ended: the whole body is one read",
        "other_protocols": "what is no exchange of HTTP: left out",
        "request": "the request: its place is guessed from the answer, what it asked for is unknown",
        "request_matched": "the request but for what it was matched on",
        "settings": "how it was emitted: settings, software, caller",
        "status": "status and headers: 200 and an event stream are taken for granted",
        "time": "when the request was made",
        "times": "when each read came: the clock goes on by a microsecond",
        "unanswered": "requests without an answer: left out",
    }
)


class Loss(NamedTuple):
    """One loss, and how often."""

    code: str
    times: int = 1

    @property
    def text(self) -> str:
        """For a person, on one line."""
        return LOSSES[self.code] + (f" ({self.times} times)" if self.times > 1 else "")
