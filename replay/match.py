"""Which recorded stream answers a request: by key, by position, or by both; and what a miss says"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from wiretape.events.json_text import dumps
from wiretape.events.record import Record

from .key import key_of
from .script import Request, Script, json_answer

__all__ = ["MISS_STATUS", "Deck", "How", "Miss", "Taken", "asked_of"]

How = Literal["key", "position", "strict"]

#: No server says this, so nobody takes a miss for an answer.
MISS_STATUS: Final = 599


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The stream that answers, by its place among all."""

    place: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Nothing answers."""

    key: str
    left: int

    def to_json(self) -> dict[str, Any]:
        """What the client is told."""
        message = f"no recorded request has the key {self.key}; {self.left} are left"
        return {"error": {"message": message, "type": "wiretape_miss", "code": "no_recording", "key": self.key}}

    def script(self) -> Script:
        """The answer."""
        return json_answer(dumps(self.to_json()), MISS_STATUS)


def asked_of(records: Sequence[Record]) -> Request:
    """The request of a stream."""
    request = next(record for record in records if record.kind == "request")
    body = request.raw or b"".join(record.raw or b"" for record in records if record.kind == "upload")
    headers = [(str(name).encode(), str(value).encode()) for name, value in request.keys.get("headers", ())]
    return Request(str(request.keys["method"]).encode(), str(request.keys["path"]).encode(), headers, body)


class Deck:
    """The streams of one or more recordings, each of which answers once."""

    def __init__(self, streams: Sequence[Sequence[Record]], how: How = "key", *, repeat: bool = False) -> None:
        self._streams = streams
        self._how = how
        self._repeat = repeat
        self._keys = [_key(asked_of(records)) for records in streams]
        self._left = dict.fromkeys(range(len(streams)))

    @property
    def unused(self) -> list[int]:
        """The places of those that never answered."""
        return list(self._left)

    def take(self, request: Request) -> Taken | Miss:
        """The next one that answers this request."""
        key = _key(request)
        for place in self._left:
            if self._keys[place] == key:
                del self._left[place]
                return Taken(place=place, records=self._streams[place])
        return Miss(key=key, left=len(self._left))


def _key(request: Request) -> str:
    return key_of(request.method.decode("latin-1"), request.target.decode("latin-1"), request.body)
