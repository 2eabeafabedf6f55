"""One recorded question and one that is asked now, made ready to be compared, and what tells two with one key apart

An id that an answer of these very recordings gave out names that answer: who goes on from another one asks something
else. The rest are whoever's who made them up, and only their order counts.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from wiretape.events.core.json_text import as_object
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads

from ..playback.script import Request
from ..redaction.redact import blanked_path
from .key import (
    IDS,
    Named,
    Reading,
    canonical,
    exact,
    exact_key_of,
    fits,
    fits_as_text,
    gapped,
    key_of,
    loose_key_of,
    named,
    prefix_of,
)

__all__ = ["Now", "Recorded", "given_out", "keys_of", "place_of", "route_of", "without_secrets_in_path"]

_Prepare = Callable[[Request], Request]

#: A member of an answer that gives something a name; inside a string its quotes would be escaped.
_GIVEN: Final = re.compile(
    rb'"(?:%b)"\s*:\s*"([^"\\]{1,256})"' % "|".join(sorted({*IDS, "message_id", "response_id"})).encode()
)


def given_out(records: Sequence[Record]) -> frozenset[str]:
    """The ids that the answer of a stream names."""
    said = b"".join(data for _, data in reads(records))
    return frozenset(found[1].decode("utf-8", "replace") for found in _GIVEN.finditer(said))


class Recorded:
    """One recorded request, made ready when it is first compared: long ones take some milliseconds each."""

    def __init__(self, asked: Request, keys: Mapping[str, Any], prepare: _Prepare) -> None:
        self.prepare = prepare
        self._recorded = without_secrets_in_path(asked)
        sha256 = keys.get("sha256")
        #: With `requests = hash` nothing but the hash was kept.
        self._sha256 = sha256 if isinstance(sha256, str) and not self._recorded.body else ""
        self.route = route_of(*place_of(self._recorded))
        self.prefix = prefix_of(place_of(self._recorded)[1])

    @property
    def hashed(self) -> bool:
        """Its body is not there."""
        return bool(self._sha256)

    @cached_property
    def request(self) -> Request:
        """As it is compared."""
        return self.prepare(self._recorded)

    @cached_property
    def key(self) -> str:
        """What it is found by."""
        method, path = place_of(self._recorded)
        return exact_key_of(method, path, self._sha256) if self.hashed else key_of(method, path, self.request.body)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """What a miss compares it by."""
        return canonical(*place_of(self.request), self.request.body)

    @cached_property
    def loose_key(self) -> str:
        """What it is found by where nothing else is."""
        return "" if self.hashed else loose_key_of(*place_of(self.request), self.request.body)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """What tells it from others with its key."""
        return canonical(*place_of(self.request), self.request.body, "plain")

    @cached_property
    def named(self) -> Named:
        """Whom it names."""
        return named(place_of(self.request)[1], self.request.body)

    @cached_property
    def gapped(self) -> bool:
        """Whether a secret is missing in it that another place gave away."""
        return not self.hashed and (gapped(self.request.target) or gapped(self.request.body))

    def fits(self, now: "Now", *, exactly: bool = False) -> bool:
        """Whether this was asked but for secrets that sealing found elsewhere, of which the asked one knows nothing."""
        if not self.gapped:
            return False
        prepared = now.prepared(self.prepare)
        mine, other = self.canonical, now.canonical(self.prepare)
        if exactly:
            mine, other = (exact(*place_of(each), each.body) for each in (self.request, prepared))
        if fits(mine, other):
            return True
        texts = (self.request.body, prepared.body)
        bare, other_bare = ({**each, "body": None} for each in (mine, other))
        return all("sha256" in as_object(each["body"]) for each in (mine, other)) and (
            fits(bare, other_bare) and fits_as_text(*texts)
        )

    def goes_on_elsewhere(self, now: "Now", given: frozenset[str]) -> bool:
        """Whether what is asked goes on from an answer that these recordings gave, and this one from another."""
        asked = now.named(self.prepare)
        return not self.hashed and any(
            other in asked.answers and other in given and mine != other
            for mine, other in zip(self.named.ids, asked.ids, strict=False)
        )

    def unlike(self, now: "Now", given: frozenset[str]) -> tuple[bool, bool]:
        """Whether a word, and whether an id of these recordings, is another one: of two with one key."""
        if self.hashed:
            return False, False
        ids = zip(self.named.ids, now.named(self.prepare).ids, strict=False)
        return (
            self.plain != now.canonical(self.prepare, "plain"),
            any(mine != other and other in given for mine, other in ids),
        )


class Now:
    """One request as it comes, made ready once for all recordings that make it ready alike."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.prefix = prefix_of(place_of(request)[1])
        self._prepared: dict[_Prepare, Request] = {}
        self._canonical: dict[tuple[_Prepare, Reading], dict[str, Any]] = {}
        self._named: dict[_Prepare, Named] = {}

    def prepared(self, prepare: _Prepare) -> Request:
        """As a recording has it."""
        if prepare not in self._prepared:
            self._prepared[prepare] = prepare(self.request)
        return self._prepared[prepare]

    def canonical(self, prepare: _Prepare, reading: Reading = "settled") -> dict[str, Any]:
        """What it is compared by."""
        if (prepare, reading) not in self._canonical:
            request = self.prepared(prepare)
            self._canonical[prepare, reading] = canonical(*place_of(request), request.body, reading)
        return self._canonical[prepare, reading]

    def named(self, prepare: _Prepare) -> Named:
        """Whom it names."""
        if prepare not in self._named:
            request = self.prepared(prepare)
            self._named[prepare] = named(place_of(request)[1], request.body)
        return self._named[prepare]

    def loose_key(self, prepare: _Prepare) -> str:
        """What it is looked for by where nothing else answers."""
        request = self.prepared(prepare)
        return loose_key_of(*place_of(request), request.body)


def without_secrets_in_path(request: Request) -> Request:
    """As it is compared: a key in a path is no part of a question."""
    target = request.target.decode("latin-1")
    blank = blanked_path(target)
    return request if blank == target else request._replace(target=blank.encode("latin-1", "replace"))


def place_of(request: Request) -> tuple[str, str]:
    """Its method and its path."""
    return request.method.decode("latin-1"), request.target.decode("latin-1")


def route_of(method: str, path: str) -> str:
    """What is asked, without whom and about what."""
    said = canonical(method, path.partition("?")[0], b"")
    return f"{said['method']} {said['path']}"


def keys_of(request: Request) -> list[str]:
    """Its key; behind it the one of a recording that kept only the hash of its body."""
    method, path = place_of(request)
    return [
        key_of(method, path, request.body),
        exact_key_of(method, path, hashlib.sha256(request.body).hexdigest()),
    ]
