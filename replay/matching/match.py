"""Choose the recorded stream that answers a request, or explain why none does.

`key`: by content. Streams with one key answer in the order of the recording, the one with the same volatile values
first. If none has the key, the only one that is equal in a loose reading answers, which is reported. `position`: the
next stream of the same method and path.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, dumps, parse
from wiretape.events.tape.record import NO_KEYS, Record

from ..playback.script import Request, Script, answer_of, json_answer
from ..redaction.plain_text import headers_to_send, plain_body
from ..redaction.redact import blanked, blanked_path, redact
from ..redaction.user_rules import Redaction
from ..sealed.sealed import asked_keys
from .json_diff import changes, shortened
from .key import IDS, Canonical, canonical, exact_key_of, fits, key_of, prefix_of, route_of, without_boundary

__all__ = [
    "LOOSELY",
    "MISS_STATUS",
    "NO_RETRY",
    "ComparedRequest",
    "Deck",
    "Drift",
    "How",
    "Miss",
    "Row",
    "Taken",
    "blank",
    "prepare_of",
    "request_of",
]

#: Redact a request as a recording was redacted.
_Prepare = Callable[[Request], Request]

How = Literal["key", "position"]

#: A status that no server uses, so that a miss is not taken for a response.
MISS_STATUS: Final = 599
#: SDKs retry every status from 500 on.
NO_RETRY: Final = (b"X-Should-Retry", b"false")
#: Marks a response that was found by a loose reading.
LOOSELY: Final = (b"X-Wiretape-Match", b"loose")
_DRIFTS_MAX: Final = 20
#: Recorded requests compared in full to find the nearest one.
_COMPARED_MAX: Final = 200
_RECORD: Final = "wiretape record --upstream URL -o FILE -- COMMAND"
#: A member of a response that names something; inside a string its quotes would be escaped.
_GIVEN_ID: Final = re.compile(
    rb'"(?:%b)"\s*:\s*"([^"\\]{1,256})"' % "|".join(sorted({*IDS, "message_id", "response_id"})).encode()
)


# -- requests, prepared to be compared ---------------------------------------------------------------------------------


def request_of(records: Sequence[Record]) -> Request:
    """Return the request of a stream, as far as the tape contains it; of a part of a run that has none, an empty one.

    That of a relayed run is empty too: the proxy asks for one event stream, and no client ever does.
    """
    request = next((record for record in records if record.kind == "request"), None)
    run = next((record for record in records[:2] if record.kind == "run"), None)
    if run is not None and (request is None or run.keys.get("mode") == "relay"):
        return Request(b"", b"", (), b"")
    if request is None:
        raise TapeError("a stream without its request cannot be matched")
    body = request.raw or b"".join(record.raw or b"" for record in records if record.kind == "upload")
    method, path = (str(request.keys.get(name, "")).encode("latin-1", "replace") for name in ("method", "path"))
    return Request(method, path, headers_to_send(request.keys), body)


def blank(request: Request) -> Request:
    """Remove compression and secrets from a body, because another client has another secret."""
    request = _decoded(request)
    return request._replace(body=blanked(request.body)) if request.body else request


def _decoded(request: Request) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return request._replace(body=plain_body(headers, request.body)) if request.body else request


def prepare_of(header: Mapping[str, Any]) -> _Prepare:
    """Return the redaction that the header of a sealed tape records."""
    redacted = as_object(header.get("redacted"))
    paths, prompts = as_list(redacted.get("paths")), bool(redacted.get("prompts"))
    if not paths and not prompts:
        return blank
    redaction = Redaction(paths=tuple(str(path) for path in paths), prompts=prompts)

    def prepare(request: Request) -> Request:
        request = _decoded(request)
        record = Record(0, 0, "request", NO_KEYS, request.body or None)
        [[redacted]] = redact([[record]], redaction)
        return blank(request._replace(body=redacted.raw or b""))

    return prepare


class _Unlike(NamedTuple):
    """What differs between two requests with one key."""

    volatile: bool = False
    #: An id that these recordings contain.
    ids: bool = False
    #: Both continue responses of these recordings, but not the same one.
    continues_another: bool = False


class ComparedRequest:
    """One request in the forms by which it is compared; each is made when it is first needed."""

    def __init__(self, request: Request, prepare: _Prepare = blank, sha256: str = "") -> None:
        """`sha256` is the hash of a body that was not kept."""
        self._original = request
        self._sha256 = sha256
        self._prepare = prepare
        self._under: dict[_Prepare, ComparedRequest] = {prepare: self}
        self.place = request.method.decode("latin-1"), blanked_path(request.target.decode("latin-1"))
        self.hashed = bool(sha256)
        self.route = route_of(*self.place)
        self.prefix = prefix_of(self.place[1])

    @staticmethod
    def recorded(records: Sequence[Record], prepare: _Prepare) -> "ComparedRequest":
        request, sha256 = request_of(records), asked_keys(records).get("sha256")
        return ComparedRequest(request, prepare, sha256 if isinstance(sha256, str) and not request.body else "")

    def like(self, recorded: "ComparedRequest") -> "ComparedRequest":
        """Return this request under the redaction of a recording."""
        prepare = recorded._prepare  # noqa: SLF001 - of the same class
        if prepare not in self._under:
            self._under[prepare] = ComparedRequest(self._original, prepare)
        return self._under[prepare]

    @cached_property
    def body(self) -> bytes:
        return self._prepare(self._original).body

    @cached_property
    def key(self) -> str:
        return exact_key_of(*self.place, self._sha256) if self.hashed else key_of(*self.place, self.body)

    @cached_property
    def loose_key(self) -> str:
        """The key by which to search if no recording has the key."""
        return "" if self.hashed else key_of(*self.place, self.body, "loose")

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The form that decides the key."""
        return canonical(*self.place, self.body).value

    @cached_property
    def plain(self) -> Canonical:
        """The same with volatile values, which distinguish requests with one key."""
        return canonical(*self.place, self.body, "plain")

    @cached_property
    def _text(self) -> str:
        """The canonical form as text, with a body that is not JSON instead of its hash."""
        form, rest = self.canonical, b""
        if "sha256" in as_object(form["body"]):
            form, rest = {**form, "body": None}, without_boundary(self.body)
        return (dumps(form) + rest).decode("utf-8", "surrogateescape")

    # -- a recorded request and a sent one ----------------------------------------------------------------------------

    def has_key_of(self, sent: "ComparedRequest") -> bool:
        """Return whether both have one key, but for secrets that only a name gave away."""
        sent = sent.like(self)
        if self.hashed:  # redacted or not
            hashes = {hashlib.sha256(body).hexdigest() for body in (sent.body, sent._original.body)}  # noqa: SLF001 - of the same class
            return self.key in {exact_key_of(*sent.place, sha256) for sha256 in hashes}
        return self.key == sent.key or fits(self._text, sent._text)  # noqa: SLF001 - of the same class

    def unlike(self, sent: "ComparedRequest", given: Callable[[str], bool]) -> _Unlike:
        """Return what differs besides the key; `given` knows the ids in these recordings."""
        if self.hashed:
            return _Unlike()
        sent = sent.like(self)
        pairs = zip(self.plain.ids, sent.plain.ids, strict=False)
        others = {other for mine, other in pairs if mine != other and given(other)}
        return _Unlike(self.plain.value != sent.plain.value, bool(others), not others.isdisjoint(sent.plain.answers))


# -- finding the stream ------------------------------------------------------------------------------------------------


class Drift(NamedTuple):
    """One difference between a request and the recorded one."""

    path: str
    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"{self.path}: {self.recorded} -> {self.asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The stream that answers, and the differences of its request that do not count."""

    place: int
    records: Sequence[Record]
    drift: Sequence[Drift] = ()
    #: Only a loose reading found it, which must be reported.
    loosely: bool = False

    def note(self) -> str:
        """Describe the differences in one line; empty if there are none."""
        if not self.drift:
            return ""
        more = f" and {len(self.drift) - 1} more" if len(self.drift) > 1 else ""
        return f"{'matched loosely' if self.loosely else 'the request differs'}: {self.drift[0]}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A request that no recording answers."""

    #: Method and path.
    asked: str
    key: str
    #: Streams that have not answered yet.
    left: int
    nearest: str = ""
    drift: Sequence[Drift] = ()
    #: The nearest stream is this request and has answered already.
    used: bool = False
    record: str = _RECORD

    def lines(self) -> list[str]:
        """Describe it for a person."""
        lines = [f"nothing recorded answers {self.asked} (key {self.key}, {self.left} streams left)"]
        if self.used:
            return [*lines, f"{self.nearest} matches this request but has already answered; set repeat to reuse it"]
        if self.nearest:
            lines.append(f"nearest: {self.nearest}, which differs in")
            lines += [f"  {drift}" for drift in self.drift[:_DRIFTS_MAX]]
            if len(self.drift) > _DRIFTS_MAX:
                lines.append(f"  and {len(self.drift) - _DRIFTS_MAX} more")
        return [*lines, f"to record it: {self.record}"]

    @property
    def script(self) -> Script:
        """The response in a shape that clients of every dialect read; SDKs show `message`."""
        error = {
            "message": "\n".join(self.lines()),
            "type": "wiretape_miss",
            "code": "no_recording",
            "param": None,
            "key": self.key,
            "left": self.left,
            "nearest": self.nearest or None,
            "differences": [drift._asdict() for drift in self.drift[:_DRIFTS_MAX]],
            "record": self.record,
        }
        response = json_answer(dumps({"type": "error", "error": error}), MISS_STATUS)
        return replace(response, headers=[*response.headers, NO_RETRY])


class Row(NamedTuple):
    """A stream of a deck."""

    records: Sequence[Record]
    name: str = "stream 1"
    #: The number of its file.
    conversation: int = 0
    #: How its file was redacted.
    prepare: _Prepare = blank
    #: Of what a client sent to a run: its number among all that was sent, from 1, and the tapes of the run.
    call: int = 0
    run: Sequence[Sequence[Record]] = ()


class Deck:
    """The streams of one or more recordings. Each answers once, or again and again with `repeat`."""

    def __init__(self, rows: Sequence[Row], how: How = "key", *, repeat: bool = False, record: str = _RECORD) -> None:
        self.how: How = how
        self.rows = rows
        self._repeat = repeat
        self._record = record
        self._prepare = rows[0].prepare if rows else blank
        self._recorded = [ComparedRequest.recorded(row.records, row.prepare) for row in rows]
        self._left = dict.fromkeys(place for place, one in enumerate(self._recorded) if one.place[0])
        #: In the order in which they answered last.
        self._used: dict[int, None] = {}
        #: By key, the broken responses that only the same request gets again.
        self._broken: dict[str, Taken] = {}

    @cached_property
    def _ids_by_stream(self) -> Sequence[frozenset[str]]:
        """The ids that each response names."""
        bodies = [answer_of(row.records) for row in self.rows]
        return [frozenset(found[1].decode("utf-8", "replace") for found in _GIVEN_ID.finditer(body)) for body in bodies]

    @cached_property
    def _all_ids(self) -> frozenset[str]:
        return frozenset[str]().union(*self._ids_by_stream)

    @property
    def unused(self) -> list[int]:
        """The streams that never answered, each once; none that no client asks for."""
        used = {self.rows[place].name for place in self._used}
        asked = (place for place, one in enumerate(self._recorded) if one.place[0])
        unused = {row.name: place for place in asked if (row := self.rows[place]).name not in used}
        return [*unused.values()]

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len({row.name for row in self.rows})

    def take(self, request: Request) -> Taken | Miss:
        sent = ComparedRequest(request, self._prepare)
        if self._broken and (again := self._broken.pop(sent.key, None)) is not None:
            return again
        if self.how == "key":
            place, loosely = self._by_key(sent)
        else:  # the next stream of the same route
            places = [*self._left, *(reversed(self._used) if self._repeat else ())]
            place, loosely = next((at for at in places if self._recorded[at].route == sent.route), None), False
        if place is None:
            return self._miss(sent)
        drift = () if not loosely and self._has_key(place, sent) else self._drift(place, sent)
        self._left.pop(place, None)
        self._used.pop(place, None)
        self._used[place] = None
        return Taken(place=place, records=self.rows[place].records, drift=drift, loosely=loosely)

    def broke(self, request: Request, taken: Taken) -> None:
        """Give the stream to the client again, because a fault broke its response.

        By position, the next request of the path would get it, so only the same request does.
        """
        if self.how == "key":
            self._used.pop(taken.place, None)
            self._left = dict.fromkeys(sorted({*self._left, taken.place}))
        else:
            self._broken[ComparedRequest(request, self._prepare).key] = taken

    # -- choosing a stream --------------------------------------------------------------------------------------------

    def _by_key(self, sent: ComparedRequest) -> tuple[int | None, bool]:
        """Return a stream, and whether to report that its request was another one."""
        alike = self._eligible([at for at, one in enumerate(self._recorded) if one.has_key_of(sent)], sent)
        if not alike:
            return self._by_loose_key(sent), True
        unlike = {place: self._unlike(place, sent) for place in alike}
        same = [place for place in alike if not any(unlike[place])]
        left = sorted((place for place in alike if place in self._left), key=lambda place: unlike[place])
        if left and (left[0] in same or not same):
            return left[0], False
        if self._repeat:
            return next(place for place in reversed(self._used) if place in (same or alike)), False
        # The stream with the same volatile values has answered already.
        return (left[0] if left else None), True

    def _by_loose_key(self, sent: ComparedRequest) -> int | None:
        """Return the only stream that is left and equal in a loose reading; None if there are several."""
        found: list[int] = []
        for place in range(len(self._recorded)) if self._repeat else self._left:
            recorded = self._recorded[place]
            comparable = recorded.route == sent.route and not recorded.hashed
            if comparable and recorded.loose_key == sent.like(recorded).loose_key:
                found.append(place)
        found = self._eligible(found, sent)
        return found[0] if len(found) == 1 else None

    def _eligible(self, places: list[int], sent: ComparedRequest) -> list[int]:
        """Drop streams that continue another response, and prefer the same path prefix and conversation."""
        places = [place for place in places if not self._unlike(place, sent).continues_another]
        places = [place for place in places if self._recorded[place].prefix == sent.prefix] or places
        if len({self.rows[place].conversation for place in places}) < 2:
            return places
        # Sealed files number their ids alike: prefer the file whose response was given.
        named = self._recorded[places[0]].plain.answers
        gave = {self.rows[place].conversation for place in self._used if named and named & self._ids_by_stream[place]}
        return [place for place in places if self.rows[place].conversation in gave] or places

    def _unlike(self, place: int, sent: ComparedRequest) -> _Unlike:
        return self._recorded[place].unlike(sent, lambda id_: id_ in self._all_ids)

    def _has_key(self, place: int, sent: ComparedRequest) -> bool:
        return self._recorded[place].has_key_of(sent) and not self._unlike(place, sent).continues_another

    # -- explaining a difference --------------------------------------------------------------------------------------

    def _miss(self, sent: ComparedRequest) -> Miss:
        asked = f"{sent.place[0]} {sent.route.partition(' ')[2]}"
        left = len({self.rows[place].name for place in self._left})
        miss = Miss(asked=asked, key=sent.key, left=left, record=self._record)
        places = [*self._left, *reversed(self._used)]
        nearest = next((place for place in places if self._has_key(place, sent)), None)
        used = nearest is not None and nearest not in self._left
        if nearest is None:
            alike = (place for place in places if self._recorded[place].route == sent.route)
            compared = [place for place in alike if not self._recorded[place].hashed][:_COMPARED_MAX]
            nearest = min(compared, key=lambda place: self._distance(place, sent), default=None)
        if nearest is not None:
            drift = self._drift(nearest, sent)
            return replace(miss, nearest=self.rows[nearest].name, used=used, drift=drift)
        # A path with the same last part suggests a base URL without its `/v1`, or with two.
        for place in places:
            route = self._recorded[place].route
            if route.rpartition("/")[2] == asked.rpartition("/")[2]:
                return replace(miss, nearest=self.rows[place].name, drift=[Drift("path", route, asked)])
        return miss

    def _distance(self, place: int, sent: ComparedRequest) -> int:
        recorded = self._recorded[place]
        return sum(1 for _ in changes(recorded.canonical, sent.like(recorded).canonical))

    def _drift(self, place: int, sent: ComparedRequest) -> list[Drift]:
        """Return the differences that count, or else those that do not."""
        recorded = self._recorded[place]
        other = sent.like(recorded)
        found = _differences(recorded.canonical, other.canonical)
        if found or not any(self._unlike(place, sent)):
            return found
        volatile = _differences(recorded.plain.value, other.plain.value)
        return volatile or _differences(parse(recorded.body), parse(other.body))  # ids, which all forms number


def _differences(a: Any, b: Any) -> list[Drift]:
    return [Drift(each.path.removeprefix("body."), shortened(each.a), shortened(each.b)) for each in changes(a, b)]
