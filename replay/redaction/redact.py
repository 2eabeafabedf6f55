"""Secrets out of recordings: found wherever they stand, replaced by a placeholder that says whose it was and which

The same secret has the same placeholder, numbered by first use, so nothing of it is left. Frames still parse; numbers,
ids and hashes are never touched. Headers go by an allow-list. What the user names is redacted too: JSON paths, prompts.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from wiretape.events.core.json_text import as_list, dumps, is_list, is_object
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.proxy.security.headers import masked_path, taped_answer, taped_request

from ..sealed.edits import Change, Text, edited, texts
from ..sealed.scalars import Path, Sort, scalars
from .body_codec import bodies, closed, opened
from .joined_text import channels
from .json_safety import keep_json
from .known import Known
from .prompts import is_prompt
from .shapes import find, merged
from .spans import Form, Span, cut, found, hits_of, take
from .strings import Joined, Piece, pieces_of
from .user_rules import Redaction, asked_for, matches, pattern_of
from .vendors import PLACEHOLDER, Hit

__all__ = ["Finding", "blanked", "blanked_path", "findings", "names_of", "redact", "shown_path", "unmatched"]

_ASKED: Final = frozenset({"request", "upload"})
#: What is left when a neighbour is gone may be a secret by itself: so often it is looked for again.
_PASSES: Final = 4


class Finding(NamedTuple):
    """A secret, by its place alone."""

    stream: int
    #: Number of the record.
    n: int
    vendor: str
    #: Path in its JSON, or which part of the record.
    where: str


class _Placeholders:
    """By first use, for one file; those that are there already keep their numbers."""

    def __init__(self, streams: Sequence[Sequence[Record]]) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        for records in streams:
            for record in records:
                said = (record.raw or b"").decode("latin-1") + dumps(dict(record.keys)).decode("latin-1")
                for match in PLACEHOLDER.finditer(said):
                    self._count[match[1]] = max(self._count.get(match[1], 0), int(match[2] or 0))

    def of(self, vendor: str, secret: str) -> str:
        if vendor == "prompt":
            digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            return f"[prompt sha256:{digest} {len(secret)} chars]"
        if (vendor, secret) not in self._known:
            number = self._count[vendor] = self._count.get(vendor, 0) + 1
            self._known[vendor, secret] = f"[redacted-{vendor}-{number}]"
        return self._known[vendor, secret]


class _Unnumbered(_Placeholders):
    """Of which secret it was, nothing."""

    def __init__(self) -> None:
        super().__init__(())

    def of(self, vendor: str, secret: str) -> str:
        del secret
        return f"[redacted-{vendor}]"


# -- the whole --------------------------------------------------------------------------------------------------------


def redact(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[list[Record]]:
    """The streams of one file, with plain requests. Redacted ones come back as they are.

    An answer that came compressed stays so, unless there is something in it that goes.
    """
    asked = redaction or Redaction()
    wanted: set[tuple[int, int]] = set()
    if coded := closed(streams):
        plain = opened(streams)
        before, after = ([bodies(records) for records in each] for each in (plain, _redacted(plain, asked)))
        wanted = {
            (stream, number)
            for stream, number, raw in coded
            if before[stream][number] != after[stream][number] or find(raw.decode("latin-1"))
        }
    return _redacted(opened(streams, lambda stream, number: (stream, number) in wanted), asked)


def findings(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[Finding]:
    """What `redact` would take out."""
    asked = redaction or Redaction()
    plain = opened(streams, numbered=False)
    known = _in_all_keys(plain)
    parts = [texts(records) for records in plain]
    each = _each_spans(plain, parts, asked, known, range(len(plain)))
    found: list[Finding] = []
    for number, records in enumerate(plain):
        found += [
            Finding(number, _record_of(records, parts[number][span.text], span.start), span.vendor, _path(span.path))
            for span in each[number]
            if span.secret is not None
        ]
        for record in records:
            found += [Finding(number, record.n, vendor, where) for vendor, _, where in _in_keys(record, known)]
    return found


def unmatched(streams: Sequence[Sequence[Record]], redaction: Redaction) -> list[str]:
    """The paths under which nothing stands."""
    if not redaction.paths:
        return []
    left = {path: pattern_of(path) for path in redaction.paths}
    for records in opened(streams):
        for text in texts(records):
            for scalar in scalars(text.json):
                for path in [path for path, pattern in left.items() if matches(pattern, scalar.path)]:
                    del left[path]
    return [*left]


def blanked(body: bytes) -> bytes:
    """A request's body with placeholders without number: what a recorded one and one with the secret have alike."""
    [[blank]] = _redacted([[Record(0, 0, "request", NO_KEYS, body)]], Redaction(), _Unnumbered())
    return _unnumbered((blank.raw or b"").decode("latin-1")).encode("latin-1")


def blanked_path(path: str) -> str:
    """The same of its path."""
    return _unnumbered(_cleaned(path, "path", _Unnumbered().of, Known()))


def shown_path(target: bytes) -> str:
    """Path and query of a request on one line, without what looks like a secret, whatever its parameter is called."""
    return blanked_path(masked_path(target))


def _unnumbered(said: str) -> str:
    return PLACEHOLDER.sub(lambda match: f"[redacted-{match[1]}]", said)


def _redacted(
    streams: Sequence[Sequence[Record]], asked: Redaction, placeholders: _Placeholders | None = None
) -> list[list[Record]]:
    """What one stream gave away is gone in all of them."""
    place = placeholders or _Placeholders(streams)
    known = _in_all_keys(streams)
    new = [list(records) for records in streams]
    differ: set[int] = set()
    left: Iterable[int] = range(len(new))
    for _ in range(_PASSES):
        count = len(known)
        parts = {number: texts(new[number]) for number in left}
        each = _each_spans(new, parts, asked, known, left)
        changed: set[int] = set()
        for number in left:
            changes = _changes(parts[number], each[number], place)
            if not changes:
                continue
            changed.add(number)
            if any(new[number][at].kind == "request" for text, _ in changes for at in text.of):
                differ.add(number)
            new[number] = edited(new[number], changes)
        left = range(len(new)) if len(known) > count else sorted(changed)
        if not changed:
            break
    return [
        [_with_keys(record, asked, place, known, asked_differs=number in differ) for record in records]
        for number, records in enumerate(new)
    ]


def _changes(
    parts: Sequence[Text], spans: Sequence[Span], placeholders: _Placeholders
) -> list[tuple[Text, Sequence[Change]]]:
    by_text: dict[int, list[Change]] = {}
    for span in sorted(spans, key=lambda span: (span.text, span.start)):
        new = placeholders.of(span.vendor, span.secret) if span.secret is not None else ""
        number = span.vendor == "bytes" or (span.vendor == "digits" and span.secret is not None)
        text = b"0" if number else _written(new, span.form)
        by_text.setdefault(span.text, []).append(Change(span.start, span.end, text))
    return [(parts[number], changes) for number, changes in by_text.items()]


def _written(new: str, form: Form) -> bytes:
    match form:
        case "arguments":  # whoever reads arguments parses them
            return dumps(dumps({"redacted": new}).decode())
        case "inside":
            return dumps(dumps({"redacted": new}).decode())[1:-1]
        case "json":  # the whole value, quotes included
            return dumps(new)
        case "url":
            return quote(new, safe="").encode()
        case "plain":
            return new.encode()


# -- in bytes ---------------------------------------------------------------------------------------------------------


def _each_spans(
    streams: Sequence[Sequence[Record]],
    parts: Mapping[int, Sequence[Text]] | Sequence[Sequence[Text]],
    asked: Redaction,
    known: Known,
    numbers: Iterable[int],
) -> dict[int, list[Span]]:
    """What goes, of each of these streams; what is found in one of them is `known` from then on."""
    each = {number: _spans(streams[number], parts[number], asked) for number in numbers}
    for taken in each.values():
        known.add((span.vendor, span.secret or "") for spans in taken.values() for span in spans)
    for number, taken in each.items():
        several = list(channels(streams[number], parts[number])) if known or any(taken.values()) else []
        _elsewhere(several, parts[number], taken, known)
        keep_json(several, parts[number], taken)
        _logprobs(parts[number], taken)
    return {number: _in_order(taken, known) for number, taken in each.items()}


def _in_order(taken: Mapping[int, Sequence[Span]], known: Known) -> list[Span]:
    """Of all texts; where an answer says all it said so far again and again, a key that grows is one."""
    return sorted(
        (
            span if span.secret is None else span._replace(secret=known.whole(span.vendor, span.secret))
            for spans in taken.values()
            for span in spans
        ),
        key=lambda span: (span.text, span.start),
    )


def _spans(records: Sequence[Record], parts: Sequence[Text], asked: Redaction) -> dict[int, list[Span]]:
    """What goes: of each text without overlap, what was asked for by name before what only looks like it."""
    taken: dict[int, list[Span]] = {}
    take(taken, asked_for(parts, asked))
    found(records, parts, taken)
    return taken


def _elsewhere(several: Sequence[Joined], parts: Sequence[Text], taken: dict[int, list[Span]], known: Known) -> None:
    """What a name gave away, where it stands without one; and of any secret the beginning, where a text ends in it."""
    if not known:
        return
    single = [piece for number, text in enumerate(parts) for piece in pieces_of(text, number)]
    here = known.within([*(joined.said for joined in several), *(piece.said for piece in single)])
    for joined in several:
        for hit in (*here.hits(joined.said), *known.begun(joined.said)):
            take(taken, cut(joined, hit))
    for piece in single:
        name = str(piece.path[-1]) if piece.path else ""
        hits = here.hits_in_name(piece.said) if piece.name else here.hits(piece.said, name)
        asked = parts[piece.text].kind in _ASKED
        for hit in (*hits, *known.begun(piece.said, "" if piece.name else name, asked=asked)):
            take(taken, cut(Joined.of([piece]), hit))


def _logprobs(parts: Sequence[Text], taken: dict[int, list[Span]]) -> None:
    """Tokens and their bytes say it all again: those beside a secret become empty, and 0."""
    for number, spans in [*taken.items()]:
        text = parts[number]
        if b'"logprobs"' not in text.raw:
            continue
        beside = {path[:depth] for path in {span.path for span in spans} for depth in range(len(path) + 1)}
        for scalar in scalars(text.json):
            path = scalar.path
            if "logprobs" not in path or path[: path.index("logprobs")] not in beside:
                continue
            start, end = text.place(scalar.start), text.place(scalar.end)
            if scalar.sort is Sort.STRING and path[-1] == "token" and end - start > len('""'):
                take(taken, [Span(number, start + 1, end - 1, path, "logprobs", None)])
            elif scalar.sort is Sort.OTHER and path[-2:-1] == ("bytes",):
                take(taken, [Span(number, start, end, path, "bytes", None)])


def _record_of(records: Sequence[Record], text: Text, place: int) -> int:
    """Which of the records that make up the text holds this place."""
    for at in text.of:
        place -= len(records[at].raw or b"")
        if place < 0:
            return records[at].n
    return records[text.of[-1]].n


def _path(path: Path) -> str:
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return "".join(said[hit.end : follow] for hit, follow in _around(said)) if find(said) else said


def _around(said: str) -> Iterator[tuple[Hit, int]]:
    """What is left of a path in which a name is a secret itself."""
    hits = [Hit(0, 0, "", ""), *find(said)]
    for hit, following in zip(hits, [*hits[1:], Hit(len(said), 0, "", "")], strict=True):
        yield hit, following.start


# -- in keys ----------------------------------------------------------------------------------------------------------

#: By vendor and secret.
_Place = Callable[[str, str], str]
#: Records whose keys say nothing but how their bytes came.
_RECEIVED: Final = frozenset({"frame", "rest", "body", "upload"})
#: What the bytes say already.
_OF_BYTES: Final = frozenset({"cuts", "event", "sse"})


def _with_keys(
    record: Record, asked: Redaction, placeholders: _Placeholders, known: Known, *, asked_differs: bool
) -> Record:
    keys = {
        name: value if name in _OF_BYTES else _cleaned(value, name, placeholders.of, known)
        for name, value in record.keys.items()
    }
    if record.kind == "open":
        keys.pop("caller", None)  # a hash of a credential
    if record.kind in ("request", "head") and "headers" in keys:
        # Again: what was no text has become one.
        keys["headers"] = _cleaned(_allowed(record.kind, keys["headers"]), "headers", placeholders.of, known)
    if record.kind == "results" and (asked_differs or asked.prompts):
        keys["results"] = [_result(row, asked, placeholders) for row in as_list(keys.get("results"))]
    if record.kind == "history" and asked.prompts:
        keys.pop("edits", None)  # which hold words, and places in words that are gone
    return record._replace(keys=keys or NO_KEYS) if keys != record.keys else record


def _in_all_keys(streams: Sequence[Sequence[Record]]) -> Known:
    """What is known before any bytes are looked at."""
    known, nothing = Known(), Known()
    kept = (record for records in streams for record in records if record.kind not in _RECEIVED)
    known.add((vendor, secret) for record in kept for vendor, secret, _ in _in_keys(record, nothing))
    return known


def _in_keys(record: Record, known: Known) -> list[tuple[str, str, str]]:
    """Vendor, secret, and in which of them."""
    found: list[tuple[str, str, str]] = []
    for where, value in record.keys.items():
        if where not in _OF_BYTES:
            noted: list[tuple[str, str]] = []
            _cleaned(value, where, _noting(noted), known)
            found += [(vendor, secret, where) for vendor, secret in noted]
    return found


def _noting(noted: list[tuple[str, str]]) -> _Place:
    """What would have been replaced."""

    def place(vendor: str, secret: str) -> str:
        noted.append((vendor, secret))
        return ""

    return place


def _cleaned(value: Any, name: str, place: _Place, known: Known) -> Any:
    if isinstance(value, str):
        said, at = "", 0
        hits = hits_of(Piece(0, (name,), name=False, said=value, places=()))
        if known:
            begun = known.begun(value, name, asked=True)
            hits = merged([*hits, *known.within([value]).hits(value, name), *begun])
        for hit in hits:
            said += value[at : hit.start] + place(hit.vendor, known.whole(hit.vendor, hit.secret))
            at = hit.end
        return said + value[at:]
    if is_object(value):
        return {_cleaned(key, "", place, known): _cleaned(each, key, place, known) for key, each in value.items()}
    if is_list(value):
        return [
            _header(each, place, known) if name == "headers" else _cleaned(each, name, place, known) for each in value
        ]
    return value


def _header(pair: Any, place: _Place, known: Known) -> Any:
    match pair:
        case [str(name), str(value)]:
            return [name, _cleaned(value, name, place, known)]
        case _:
            return _cleaned(pair, "", place, known)


def _allowed(kind: str, headers: Any) -> Any:
    """What the proxy itself would have kept; other recorders keep all."""
    keep = taped_request if kind == "request" else taped_answer
    pairs = [(str(row[0]), str(row[1])) for row in as_list(headers) if is_list(row) and len(row) == 2]
    return keep((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in pairs)


def _result(row: Any, asked: Redaction, placeholders: _Placeholders) -> Any:
    """Without the hash of arguments that may have held a secret; with `prompts` the words too."""
    if not is_object(row):
        return row
    kept: dict[str, Any] = {name: value for name, value in row.items() if name != "arguments"}
    output = kept.get("output")
    if asked.prompts and isinstance(output, str) and output and not is_prompt(output):
        kept["output"] = placeholders.of("prompt", output)
    return kept


def names_of(redaction: Redaction) -> Mapping[str, Any]:
    """As the header of a sealed tape says them: names, never values."""
    asked: dict[str, Any] = {"rules": ["headers", "names", "shapes"]}
    if redaction.paths:
        asked["paths"] = sorted(redaction.paths)
    if redaction.prompts:
        asked["prompts"] = "sha256"
    return asked
