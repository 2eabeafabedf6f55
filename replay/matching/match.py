"""Which recorded stream answers a request: by key, by position, or by both; and what a miss says

`key`: by what is asked, first in first out within a key, in any order across keys; of several with one key the one
that was asked just this, times and ids in the results of tools included. Where none has it, the only one that has it
when the results of tools are read loosely, which is told. `position`: the next stream of the
same method and path in its conversation, and what it was asked differently is told as drift. `strict`: the next one,
and it must have been asked exactly this.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, get_args

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, dumps
from wiretape.events.tape.record import NO_KEYS, Record

from ..playback.script import Request, Script, json_answer
from ..redaction.body_codec import headers_of, plain_body
from ..redaction.redact import blanked, redact
from ..redaction.user_rules import Redaction
from ..sealed.joined_bodies import asked_keys
from .json_diff import changes, shortened
from .key import exact
from .question import Now, Recorded, given_out, keys_of, place_of, route_of, without_secrets_in_path

__all__ = [
    "HOWS",
    "LOOSELY",
    "MISS_STATUS",
    "NO_RETRY",
    "Deck",
    "Drift",
    "How",
    "Miss",
    "Prepare",
    "Taken",
    "asked_of",
    "blank",
    "prepare_of",
]

How = Literal["key", "position", "strict"]
HOWS: Final[tuple[str, ...]] = get_args(How)

#: No server says this, so nobody takes a miss for an answer.
MISS_STATUS: Final = 599
#: SDKs would ask again for any status from 500 on.
NO_RETRY: Final = (b"X-Should-Retry", b"false")
#: Differences that are told; the rest is a number.
_DRIFTS_MAX: Final = 20
#: Recorded requests that are compared with one that nothing answers: the latest ones are the likeliest.
_COMPARED_MAX: Final = 200
#: Of an answer that was found loosely.
LOOSELY: Final = (b"X-Wiretape-Match", b"loose")
_RECORD: Final = "wiretape record --upstream URL -o FILE -- COMMAND"


class Drift(NamedTuple):
    """One place where a request differs from the recorded one."""

    path: str
    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"{self.path}: {self.recorded} -> {self.asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The stream that answers, by its place among all; what it was asked otherwise, where that does not count."""

    place: int
    records: Sequence[Record]
    drift: Sequence[Drift] = ()
    #: Its key is another one, and only the loose one the same: to be told wherever it answers.
    loosely: bool = False

    def told(self) -> str:
        """What it was asked otherwise, for a line; empty where nothing was."""
        if not self.drift:
            return ""
        more = f" and {len(self.drift) - 1} more" if len(self.drift) > 1 else ""
        how = "matched loosely" if self.loosely else "asked otherwise"
        return f"{how}: {self.drift[0]}{more}"

    def over(self, script: Script) -> Script:
        """The answer, which says that it was found loosely."""
        return replace(script, headers=[*script.headers, LOOSELY]) if self.loosely else script


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Nothing answers."""

    #: What was asked: `POST /v1/chat/completions`.
    asked: str
    key: str
    #: Streams that have not answered yet.
    left: int
    #: The recorded request that is most like it: its name, and in what it differs.
    nearest: str = ""
    drift: Sequence[Drift] = ()
    #: It is recorded, and has answered already.
    used: bool = False
    record: str = _RECORD

    def lines(self) -> list[str]:
        """For a person; the first line says it all."""
        said = [f"nothing recorded answers {self.asked} (key {self.key}, {self.left} streams left)"]
        if self.used:
            return [*said, f"{self.nearest} is this request and has answered already (repeat?)"]
        if self.nearest:
            said.append(f"nearest: {self.nearest}" + (", and it differs in" if self.drift else ", out of turn"))
            said += [f"  {drift}" for drift in islice(self.drift, _DRIFTS_MAX)]
            if len(self.drift) > _DRIFTS_MAX:
                said.append(f"  and {len(self.drift) - _DRIFTS_MAX} more")
        return [*said, f"to record it: {self.record}"]

    def to_json(self) -> dict[str, Any]:
        """What the client is told: SDKs show `message`."""
        return {
            "error": {
                "message": "\n".join(self.lines()),
                "type": "wiretape_miss",
                "code": "no_recording",
                "param": None,
                "key": self.key,
                "left": self.left,
                "nearest": self.nearest or None,
                "differences": [drift._asdict() for drift in islice(self.drift, _DRIFTS_MAX)],
                "record": self.record,
            }
        }

    def script(self) -> Script:
        """The answer."""
        answer = json_answer(dumps(self.to_json()), MISS_STATUS)
        return Script(status=answer.status, headers=[*answer.headers, NO_RETRY], steps=answer.steps)


def asked_of(records: Sequence[Record]) -> Request:
    """The request of a stream, as far as the tape has it."""
    request = next((record for record in records if record.kind == "request"), None)
    if request is None:
        raise TapeError("a stream without its request cannot be matched")
    body = request.raw or b"".join(record.raw or b"" for record in records if record.kind == "upload")
    rows = map(as_list, as_list(request.keys.get("headers")))
    said = headers_of(
        ((str(row[0]), str(row[1])) for row in rows if len(row) == 2), str(request.keys.get("decoded", ""))
    )
    headers = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in said]
    method, path = (str(request.keys.get(name, "")) for name in ("method", "path"))
    return Request(method.encode("latin-1", "replace"), path.encode("latin-1", "replace"), headers, body)


#: What a recording would have made of a request.
Prepare = Callable[[Request], Request]


def blank(request: Request) -> Request:
    """Without secrets, and without compression: who has another one, or none, asks the same."""
    request = _plain(request)
    return request._replace(body=blanked(request.body)) if request.body else request


def _plain(request: Request) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return request._replace(body=plain_body(headers, request.body)) if request.body else request


def prepare_of(header: Mapping[str, Any]) -> Prepare:
    """As the header of a sealed tape says that it was redacted."""
    said = as_object(header.get("redacted"))
    paths, prompts = as_list(said.get("paths")), bool(said.get("prompts"))
    if not paths and not prompts:
        return blank
    redaction = Redaction(paths=tuple(str(path) for path in paths), prompts=prompts)

    def prepare(request: Request) -> Request:
        request = _plain(request)
        record = Record(0, 0, "request", NO_KEYS, request.body or None)
        [[redacted]] = redact([[record]], redaction)
        return blank(request._replace(body=redacted.raw or b""))

    return prepare


class Deck:
    """The streams of one or more recordings, each of which answers once, or again and again with `repeat`.

    `names` says what to call each stream, and `conversations` which of them belong together (the file that they came
    from). `prepares` make of a request what the recording of each stream would have made of it: redacted as it is.
    """

    def __init__(
        self,
        streams: Sequence[Sequence[Record]],
        how: How = "key",
        *,
        repeat: bool = False,
        names: Sequence[str] = (),
        conversations: Sequence[int] = (),
        prepares: Sequence[Prepare] = (),
        record: str = _RECORD,
    ) -> None:
        self._streams = streams
        self._how: How = how
        self._repeat = repeat
        self._names = names or [f"stream {number}" for number in range(1, len(streams) + 1)]
        self._conversations = conversations or [0] * len(streams)
        self._record = record
        each = prepares or [blank] * len(streams)
        self._prepares = list(dict.fromkeys(each))
        self._asked = [
            Recorded(asked_of(records), asked_keys(records), prepare)
            for records, prepare in zip(streams, each, strict=True)
        ]
        self._left = dict.fromkeys(range(len(streams)))
        self._used: dict[int, None] = {}

    @cached_property
    def _by(self) -> Mapping[str, Sequence[int]]:
        """The places that have a key."""
        places: dict[str, list[int]] = {}
        for place, asked in enumerate(self._asked):
            places.setdefault(asked.key, []).append(place)
        return places

    @cached_property
    def _given(self) -> Sequence[frozenset[str]]:
        """The ids that each stream gave out."""
        return [given_out(records) for records in self._streams]

    @cached_property
    def _all_given(self) -> frozenset[str]:
        return frozenset[str]().union(*self._given)

    @property
    def unused(self) -> list[int]:
        """The places of those that never answered."""
        return [place for place in range(len(self._streams)) if place not in self._used]

    @property
    def how(self) -> How:
        """What makes a stream answer."""
        return self._how

    def conversation(self, place: int) -> int:
        """Which one a stream belongs to."""
        return self._conversations[place]

    def name(self, place: int) -> str:
        """What to call a stream."""
        return self._names[place]

    def take(self, request: Request) -> Taken | Miss:
        """The next one that answers this request."""
        request = without_secrets_in_path(request)
        now = Now(request)
        keys = [key for prepare in self._prepares for key in keys_of(now.prepared(prepare))]
        keys += keys_of(request)[1:]
        if self._how == "key":
            place, loosely = self._by_key(keys, now)
        else:
            place, loosely = self._by_position(route_of(*place_of(request)), keys, now), False
        if place is None or (self._how == "strict" and not self._is_exactly(place, now)):
            return self._miss(now, keys, place)
        drift = () if not loosely and self._is_asked(place, keys, now) else self._told(place, now)
        self._left.pop(place, None)
        self._used.pop(place, None)
        self._used[place] = None
        return Taken(place=place, records=self._streams[place], drift=drift, loosely=loosely)

    def give_back(self, taken: Taken) -> None:
        """It has not answered after all: the next one who asks for it gets it."""
        self._used.pop(taken.place, None)
        self._left = dict.fromkeys(sorted({*self._left, taken.place}))

    # -- which one --------------------------------------------------------------------------------------------------

    def _by_key(self, keys: Sequence[str], now: Now) -> tuple[int | None, bool]:
        """Which one, and whether it is to be told that it was asked something else."""
        having = sorted({place for key in keys for place in self._by.get(key, ())})
        alike = self._told_apart(having, now)
        unlike = {place: self._asked[place].unlike(now, self._ours(now)) for place in alike}
        same = [place for place in alike if not any(unlike[place])]
        left = sorted((place for place in alike if place in self._left), key=lambda place: unlike[place])
        if left and (left[0] in same or not same):
            return left[0], False
        again = next((place for place in reversed(self._used) if place in same), None)
        if again is not None and self._repeat:
            return again, False
        gapped = [place for place in range(len(self._asked)) if place not in having and self._asked[place].gapped]
        fitting = self._told_apart([place for place in gapped if self._asked[place].fits(now)], now)
        left += [place for place in fitting if place in self._left]
        if left:  # what was asked just this has answered, so this is another reading of it
            return left[0], again is not None
        again = next((place for place in reversed(self._used) if place in alike or place in fitting), None)
        if again is not None:  # the last one that was asked this
            return (again if self._repeat else None), False
        return self._loosely(now), True

    def _told_apart(self, places: Sequence[int], now: Now) -> Sequence[int]:
        """Without those that go on from another answer, or that came by another route where one came by this."""
        if not places:
            return places
        given = self._ours(now)
        places = [place for place in places if not self._asked[place].goes_on_elsewhere(now, given)]
        places = [place for place in places if self._asked[place].prefix == now.prefix] or places
        if len({self._conversations[place] for place in places}) < 2:
            return places
        # Sealed files number their answers alike: the one goes on whose answer has been given.
        names = self._asked[places[0]].named.answers & given
        gave = {self._conversations[place] for place in self._used if names & self._given[place]}
        return [place for place in places if self._conversations[place] in gave] or places

    def _ours(self, now: Now) -> frozenset[str]:
        """The ids that these recordings gave out, where any is asked for."""
        return self._all_given if any(now.named(prepare).ids for prepare in self._prepares) else frozenset()

    def _loosely(self, now: Now) -> int | None:
        """The only one that is left and has its loose key: of two nobody knows which is meant."""
        route = route_of(*place_of(now.request))
        places = range(len(self._asked)) if self._repeat else self._left
        of_it = [place for place in places if self._asked[place].route == route and not self._asked[place].hashed]
        keys = {prepare: now.loose_key(prepare) for prepare in {self._asked[place].prepare: None for place in of_it}}
        found = [place for place in of_it if self._asked[place].loose_key == keys[self._asked[place].prepare]]
        found = list(self._told_apart(found, now))
        return found[0] if len(found) == 1 else None

    def _is_asked(self, place: int, keys: Sequence[str], now: Now) -> bool:
        asked = self._asked[place]
        same = asked.key in keys or asked.fits(now)
        return same and not asked.goes_on_elsewhere(now, self._ours(now))

    def _by_position(self, route: str, keys: Sequence[str], now: Now) -> int | None:
        """The next one of each conversation; of several the one that was asked this, or what is most like it."""
        following: dict[int, int] = {}
        for place in self._left:
            if self._asked[place].route == route:
                following.setdefault(self._conversations[place], place)
        if not following:
            again = (place for place in reversed(self._used) if self._asked[place].route == route)
            return next(again, None) if self._repeat else None
        for place in following.values():
            if self._is_asked(place, keys, now):
                return place
        places = list(following.values())
        return places[0] if len(places) == 1 else min(places, key=lambda place: self._distance(place, now))

    def _is_exactly(self, place: int, now: Now) -> bool:
        asked = self._asked[place]
        if asked.hashed:
            return asked.key in keys_of(now.request)
        prepared = now.prepared(asked.prepare)
        same = exact(*place_of(asked.request), asked.request.body) == exact(*place_of(prepared), prepared.body)
        return same or asked.fits(now, exactly=True)

    # -- none -------------------------------------------------------------------------------------------------------

    def _miss(self, now: Now, keys: Sequence[str], place: int | None) -> Miss:
        """`place` is the one whose turn it is, where the content alone is wrong."""
        method, path = place_of(now.request)
        asked = f"{method} {route_of(method, path).partition(' ')[2]}"
        left = len(self._left)
        nearest = place if place is not None else self._nearest(route_of(method, path), keys, now)
        if nearest is None:
            return self._elsewhere(Miss(asked=asked, key=keys[0], left=left, record=self._record))
        used = place is None and self._is_asked(nearest, keys, now) and nearest not in self._left
        drift = self._drift(nearest, now, exactly=True) if self._how == "strict" else self._told(nearest, now)
        name = self._names[nearest]
        return Miss(asked=asked, key=keys[0], left=left, nearest=name, drift=drift, used=used, record=self._record)

    def _elsewhere(self, miss: Miss) -> Miss:
        """Nothing of its path is recorded: one that ends like it says that a base URL lacks its `/v1`, or has two."""
        last = miss.asked.rpartition("/")[2]
        for place in [*self._left, *reversed(self._used)]:
            route = self._asked[place].route
            if route.rpartition("/")[2] == last:
                return replace(miss, nearest=self._names[place], drift=[Drift("path", route, miss.asked)])
        return miss

    def _nearest(self, route: str, keys: Sequence[str], now: Now) -> int | None:
        """One with its key, which has answered already; else the fewest differences, first among what is left."""
        places = [*self._left, *reversed(self._used)]
        for place in places:
            if self._is_asked(place, keys, now):
                return place
        alike = [place for place in places if self._asked[place].route == route and not self._asked[place].hashed]
        return min(alike[:_COMPARED_MAX], key=lambda place: self._distance(place, now), default=None)

    def _distance(self, place: int, now: Now) -> int:
        """In how many places it differs."""
        asked = self._asked[place]
        return sum(1 for _ in changes(asked.canonical, now.canonical(asked.prepare)))

    def _told(self, place: int, now: Now) -> Sequence[Drift]:
        """In what it differs: in what counts, else in what does not."""
        if found := self._drift(place, now):
            return found
        asked, given = self._asked[place], self._ours(now)
        if any(asked.unlike(now, given)):
            a, b = asked.plain, now.canonical(asked.prepare, "plain")
            return _drifts(a, b) or self._drift(place, now, exactly=True)
        return []

    def _drift(self, place: int, now: Now, *, exactly: bool = False) -> list[Drift]:
        asked = self._asked[place]
        a, b = asked.canonical, now.canonical(asked.prepare)
        if exactly:
            a, b = (exact(*place_of(each), each.body) for each in (asked.request, now.prepared(asked.prepare)))
        return _drifts(a, b)


def _drifts(a: Any, b: Any) -> list[Drift]:
    return [Drift(_path(one.path), shortened(one.a), shortened(one.b)) for one in changes(a, b)]


def _path(path: str) -> str:
    """`messages[2].content` is a place in the body; what is not is named whole."""
    return path.removeprefix("body.")
