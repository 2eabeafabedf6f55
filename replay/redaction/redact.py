"""Replace the secrets of a file: every text is searched once, joined with the pieces it was streamed in

The same secret has the same placeholder, numbered by first use. JSON stays JSON; numbers, ids and hashes are never
touched. Headers pass an allow-list.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, dumps, is_list, is_object, parse
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.proxy.security.headers import masked_path, taped_answer, taped_request

from ..sealed.texts import Change, Path, Text, edited, scalars, texts
from .body_codec import opened
from .joined_text import Joined, framing_of, joined_texts, pieces_of
from .known import Known
from .names import is_secret_number
from .prompts import is_prompt, words
from .shapes import find, merged, names_of, search
from .user_rules import Redaction, matches, pattern_of
from .vendors import PLACEHOLDER, Hit, keys

__all__ = ["Finding", "blanked", "blanked_path", "findings", "redact", "rules_of", "shown_path", "unmatched"]

#: How a placeholder is written: as it is, as a JSON string, as arguments of a tool, or escaped for a URL.
_Form = Literal["plain", "json", "arguments", "url"]
#: The rest of a text may be a secret once its neighbour is gone: the search ends when it finds nothing.
_PASSES_MAX: Final = 6
_NAMES_NUMBERS: Final = re.compile(rb"(?i)pass|pwd|secret|api.?key")
_REDACTED: Final = re.compile(rf'{PLACEHOLDER.pattern}|\{{"redacted":"{PLACEHOLDER.pattern}"\}}')


class Finding(NamedTuple):
    """The place of a secret: its stream, record, vendor, and the path or the key that holds it."""

    stream: int
    n: int
    vendor: str
    where: str


class _Span(NamedTuple):
    """Bytes of one text to replace, and the secret; None for a piece after the first, which becomes empty."""

    text: int
    start: int
    end: int
    path: Path
    vendor: str
    secret: str | None
    form: _Form = "plain"


class _Placeholders:
    """Placeholders of one file, numbered by first use; those that are there keep their numbers."""

    def __init__(self, streams: Sequence[Sequence[Record]], *, numbered: bool = True) -> None:
        self._numbered = numbered
        self._known: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        for record in (record for records in streams for record in records):
            text = (record.raw or b"").decode("latin-1") + dumps(dict(record.keys)).decode("latin-1")
            for match in PLACEHOLDER.finditer(text):
                self._count[match[1]] = max(self._count.get(match[1], 0), int(match[2] or 0))

    def of(self, vendor: str, secret: str) -> str:
        if vendor == "prompt":
            digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            return f"[prompt sha256:{digest} {len(secret)} chars]"
        if not self._numbered:
            return f"[redacted-{vendor}]"
        if (vendor, secret) not in self._known:
            number = self._count[vendor] = self._count.get(vendor, 0) + 1
            self._known[vendor, secret] = f"[redacted-{vendor}-{number}]"
        return self._known[vendor, secret]


# -- files ------------------------------------------------------------------------------------------------------------


def redact(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[list[Record]]:
    """Return the streams of one file without secrets, their bodies decoded. Redacted streams are returned unchanged."""
    return _redacted(opened(streams), redaction or Redaction())


def findings(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[Finding]:
    """Return the places that `redact` would change."""
    asked = redaction or Redaction()
    plain = opened(streams, numbered=False)
    known = _known_from_keys(plain)
    searches = [_Search(records, asked, known) for records in plain]
    found: list[Finding] = []
    for number, (records, one) in enumerate(zip(plain, searches, strict=True)):
        found += [
            Finding(number, _record_at(records, one.texts[span.text], span.start), span.vendor, _shown(span.path))
            for span in one.spans(known)
            if span.secret is not None
        ]
        for record in records:
            found += [Finding(number, record.n, vendor, where) for vendor, _, where in _in_keys(record, known)]
    return found


def unmatched(streams: Sequence[Sequence[Record]], redaction: Redaction) -> list[str]:
    """Return the user's paths that match nothing."""
    left = {path: pattern_of(path) for path in redaction.paths}
    for records in opened(streams) if left else ():
        for text in texts(records):
            for scalar in scalars(text.json):
                left = {path: pattern for path, pattern in left.items() if not matches(pattern, scalar.path)}
    return [*left]


def blanked(body: bytes) -> bytes:
    """Return a request's body with placeholders without numbers: the same for the recorded one and for a live one."""
    records = [Record(0, 0, "request", NO_KEYS, body)]
    [[blank]] = _redacted([records], Redaction(), _Placeholders((), numbered=False))
    return _unnumbered((blank.raw or b"").decode("latin-1")).encode("latin-1")


def blanked_path(path: str) -> str:
    """Return the path of a request with placeholders without numbers."""
    return _unnumbered(_cleaned(path, "path", _Placeholders((), numbered=False).of, Known()))


def shown_path(target: bytes) -> str:
    """Return path and query of a request on one line, without secrets, for messages."""
    return blanked_path(masked_path(target))


def rules_of(redaction: Redaction) -> Mapping[str, Any]:
    """Return what the header of a sealed tape says was redacted: names, never values."""
    said: dict[str, Any] = {"rules": ["headers", "names", "shapes"]}
    if redaction.detector:
        said["rules"] = ["detector", *said["rules"]]
    if redaction.paths:
        said["paths"] = sorted(redaction.paths)
    if redaction.prompts:
        said["prompts"] = "sha256"
    return said


def _unnumbered(text: str) -> str:
    return PLACEHOLDER.sub(lambda match: f"[redacted-{match[1]}]", text)


def _redacted(
    streams: Sequence[Sequence[Record]], asked: Redaction, placeholders: _Placeholders | None = None
) -> list[list[Record]]:
    """Replace until nothing is found; a secret of one stream is replaced in all of them."""
    place = placeholders or _Placeholders(streams)
    known = _known_from_keys(streams)
    new = [list(records) for records in streams]
    left: Sequence[int] = range(len(new))
    for _ in range(_PASSES_MAX):
        count = len(known)
        changed = _pass(new, left, asked, known, place)
        left = range(len(new)) if len(known) > count else changed
        if not left:
            return [_with_all_keys(*pair, asked, place, known) for pair in zip(streams, new, strict=True)]
    raise TapeError("Cannot redact this recording: each pass finds another secret. Please report this as a bug.")


def _pass(
    new: list[list[Record]], left: Sequence[int], asked: Redaction, known: Known, place: _Placeholders
) -> list[int]:
    """Replace what is found in the streams of these numbers, and return those that changed."""
    searches = [(number, _Search(new[number], asked, known)) for number in left]
    changed: list[int] = []
    for number, one in searches:
        if changes := _changes(one.texts, one.spans(known), place):
            changed.append(number)
            new[number] = edited(new[number], changes)
    return changed


def _changes(
    parts: Sequence[Text], spans: Iterable[_Span], placeholders: _Placeholders
) -> list[tuple[Text, Sequence[Change]]]:
    by_text: dict[int, list[Change]] = {}
    for span in spans:
        new = placeholders.of(span.vendor, span.secret) if span.secret is not None else ""
        is_number = span.vendor == "bytes" or (span.vendor == "digits" and span.secret is not None)
        by_text.setdefault(span.text, []).append(
            Change(span.start, span.end, b"0" if is_number else _written(new, span.form))
        )
    return [(parts[number], changes) for number, changes in by_text.items()]


def _written(new: str, form: _Form) -> bytes:
    match form:
        case "arguments":  # clients parse them
            return dumps(dumps({"redacted": new}).decode())
        case "json":  # the value with its quotes
            return dumps(new)
        case "url":
            return quote(new, safe="").encode()
        case "plain":
            return new.encode()


# -- one stream -------------------------------------------------------------------------------------------------------


class _Search:
    """The secrets of one stream: those of its own at once, those known from elsewhere in the file with `spans`."""

    def __init__(self, records: Sequence[Record], asked: Redaction, known: Known) -> None:
        self.texts = texts(records)
        self._taken: dict[int, list[_Span]] = {}
        self._asked = asked
        self._streamed = joined_texts(records, self.texts)
        inside = {(piece.text, piece.places[0]) for joined in self._streamed for piece in joined.pieces}
        self._single: list[tuple[Joined, str, bool]] = []
        for number, text in enumerate(self.texts):
            pieces = [*pieces_of(text, number)]
            names = names_of([(piece.path, piece.said, piece.name) for piece in pieces])
            for piece, name in zip(pieces, names, strict=True):
                self._single.append((Joined.of([piece]), name, (number, piece.places[0]) in inside))
            self._single += [(Joined.of([piece]), "", False) for piece in framing_of(text, number)]
        self._take_user_rules()
        self._find()
        for span in (span for spans in self._taken.values() for span in spans if span.secret is not None):
            known.add(span.vendor, span.secret or "")

    def spans(self, known: Known) -> list[_Span]:
        """Return what to replace, in order: also the secrets `known` from elsewhere."""
        if known:
            here = known.within(joined.said for joined in (*self._streamed, *(one for one, _, _ in self._single)))
            single = [(one, name) for one, name, _ in self._single]
            for joined, name in [*((one, "") for one in self._streamed), *single]:
                first = joined.pieces[0]
                if not (first.name and first.said.replace("_", "").isalpha()):  # as programs name members
                    request = self.texts[first.text].kind in ("request", "upload")
                    self._take(joined, search(joined.said, name, partial(known.hits, here=here, request=request)))
        if self._taken:
            self._take_logprobs()
        return [
            span if span.secret is None else span._replace(secret=known.whole(span.vendor, span.secret))
            for number in sorted(self._taken)
            for span in self._taken[number]
        ]

    def _find(self) -> None:
        for joined in self._streamed:
            self._take(joined, self._hits(joined.said, _last_name(joined.pieces[0].path)))
        for joined, name, streamed in self._single:
            # A piece of a streamed text was searched with the others; alone it may hide a key from a word before it.
            self._take(joined, keys(joined.said) if streamed else self._hits(joined.said, name))
        for number, text in enumerate(self.texts):
            if text.spans and _NAMES_NUMBERS.search(text.raw):
                for scalar in scalars(json := text.json):
                    digits = json[scalar.start : scalar.end].decode("latin-1")
                    if scalar.sort == "other" and scalar.path and is_secret_number(str(scalar.path[-1]), digits):
                        start = text.place(scalar.start)
                        self._add(_Span(number, start, start + len(digits), scalar.path, "secret", digits, "json"))

    def _hits(self, text: str, name: str) -> Sequence[Hit]:
        hits = find(text, name)
        return merged([*hits, *search(text, name, self._detected)]) if self._asked.detector else hits

    def _detected(self, text: str, _: str) -> Iterator[Hit]:
        for secret in self._asked.detector(text) if self._asked.detector else ():
            if secret and PLACEHOLDER.search(secret) is None:
                yield from (Hit(*match.span(), "secret", secret) for match in re.finditer(re.escape(secret), text))

    def _take(self, joined: Joined, hits: Iterable[Hit]) -> None:
        for hit in hits:
            spans: list[_Span] = []
            for piece, start, end in joined.parts(hit.start, hit.end):
                spans.append(_Span(piece.text, start, end, piece.path, hit.vendor, None if spans else hit.secret))
            for span in spans:
                self._add(span)

    def _add(self, span: _Span) -> None:
        """Add a span, unless something there is taken already."""
        others = self._taken.setdefault(span.text, [])
        at = bisect_left(others, span.start, key=lambda other: other.start)
        if (at == 0 or others[at - 1].end <= span.start) and (at == len(others) or span.end <= others[at].start):
            others.insert(at, span)

    def _take_user_rules(self) -> None:
        patterns = [pattern_of(path) for path in self._asked.paths]
        streams = {
            (piece.text, piece.places[0]): joined for joined in self._streamed if patterns for piece in joined.pieces
        }
        replaced: set[int] = set()
        for number, text in enumerate(self.texts):
            json = text.json if patterns else b""
            for scalar in scalars(json):
                if scalar.sort in ("name", "torn") or not any(matches(each, scalar.path) for each in patterns):
                    continue
                value = parse(json[scalar.start : scalar.end])
                said = value if isinstance(value, str) else json[scalar.start : scalar.end].decode("utf-8", "replace")
                if not said or _REDACTED.fullmatch(said) or is_prompt(said):
                    continue
                start = text.place(scalar.start)
                end = start + scalar.end - scalar.start
                form: _Form = "arguments" if scalar.sort == "string" and scalar.path[-1] == "arguments" else "json"
                joined = streams.get((number, start + 1))
                if id(joined) in replaced:  # one placeholder for all pieces, so that they stay JSON
                    self._add(_Span(number, start + 1, end - 1, scalar.path, "path", None))
                else:
                    self._add(_Span(number, start, end, scalar.path, "path", joined.said if joined else said, form))
                    replaced |= {id(joined)} if joined else set()
            if self._asked.prompts and text.kind in ("request", "upload"):
                for each in words(text):
                    self._add(_Span(number, each.start, each.end, each.path, "prompt", each.said, each.form))

    def _take_logprobs(self) -> None:
        """Empty the tokens next to a secret, and their bytes, which repeat it."""
        for number, spans in [*self._taken.items()]:
            text = self.texts[number]
            if b'"logprobs"' not in text.raw:
                continue
            around = {path[:depth] for path in {span.path for span in spans} for depth in range(len(path) + 1)}
            for scalar in scalars(text.json):
                path = scalar.path
                if "logprobs" not in path or path[: path.index("logprobs")] not in around:
                    continue
                start, end = text.place(scalar.start), text.place(scalar.end)
                if scalar.sort == "string" and path[-1] == "token" and end - start > len('""'):
                    self._add(_Span(number, start + 1, end - 1, path, "logprobs", None))
                elif scalar.sort == "other" and path[-2:-1] == ("bytes",):
                    self._add(_Span(number, start, end, path, "bytes", None))


def _last_name(path: Path) -> str:
    return next((step for step in reversed(path) if isinstance(step, str)), "")


def _record_at(records: Sequence[Record], text: Text, place: int) -> int:
    """Return the number of the record that holds this byte of a text."""
    for at in text.of:
        place -= len(records[at].raw or b"")
        if place < 0:
            return records[at].n
    return records[text.of[-1]].n


def _shown(path: Path) -> str:
    """Return a path without names that are secrets themselves."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    for hit in reversed(find(said)):
        said = said[: hit.start] + said[hit.end :]
    return said


# -- keys of records --------------------------------------------------------------------------------------------------

#: Returns what replaces a vendor's secret.
_Place = Callable[[str, str], str]
#: Records whose keys describe their bytes alone.
_RECEIVED: Final = frozenset({"frame", "rest", "body", "upload"})
_OF_BYTES: Final = frozenset({"cuts", "event", "sse"})


def _with_all_keys(
    old: Sequence[Record], new: Sequence[Record], asked: Redaction, placeholders: _Placeholders, known: Known
) -> list[Record]:
    bodies = [[record.raw for record in records if record.kind == "request"] for records in (old, new)]
    changed = bodies[0] != bodies[1]
    return [_with_keys(record, asked, placeholders, known, changed=changed) for record in new]


def _with_keys(record: Record, asked: Redaction, placeholders: _Placeholders, known: Known, *, changed: bool) -> Record:
    if record.kind in _RECEIVED and not record.keys.keys() - _OF_BYTES:
        return record
    new = {
        name: value if name in _OF_BYTES else _cleaned(value, name, placeholders.of, known)
        for name, value in record.keys.items()
    }
    if record.kind == "open":
        new.pop("caller", None)  # a hash of a credential
    if record.kind in ("request", "head") and "headers" in new:
        # Cleaned again: values that were no text have become text.
        new["headers"] = _cleaned(_allowed(record.kind, new["headers"]), "headers", placeholders.of, known)
    if record.kind == "results" and (changed or asked.prompts):
        new["results"] = [_result(row, asked, placeholders) for row in as_list(new.get("results"))]
    if record.kind == "history" and asked.prompts:
        new.pop("edits", None)  # words, and places in words that are gone
    return record._replace(keys=new or NO_KEYS) if new != record.keys else record


def _known_from_keys(streams: Sequence[Sequence[Record]]) -> Known:
    known, nothing = Known(), Known()
    for record in (record for records in streams for record in records if record.kind not in _RECEIVED):
        for vendor, secret, _ in _in_keys(record, nothing):
            known.add(vendor, secret)
    return known


def _in_keys(record: Record, known: Known) -> Iterator[tuple[str, str, str]]:
    """Yield vendor, secret and key of each secret in the keys of a record."""
    for where, value in record.keys.items():
        noted: list[tuple[str, str]] = []

        def note(vendor: str, secret: str, noted: list[tuple[str, str]] = noted) -> str:
            noted.append((vendor, secret))
            return ""

        if where not in _OF_BYTES:
            _cleaned(value, where, note, known)
        yield from ((vendor, secret, where) for vendor, secret in noted)


def _cleaned(value: Any, name: str, place: _Place, known: Known) -> Any:
    if isinstance(value, str):
        hits = find(value, name)
        if known:
            here = known.within([value])
            hits = merged([*hits, *known.hits(value, name, here=here, request=True)])
        said, at = "", 0
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
    """Return the headers that the proxy would have recorded; other recorders keep all."""
    keep = taped_request if kind == "request" else taped_answer
    pairs = [(str(row[0]), str(row[1])) for row in as_list(headers) if is_list(row) and len(row) == 2]
    return keep((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in pairs)


def _result(row: Any, asked: Redaction, placeholders: _Placeholders) -> Any:
    """Drop the hash of arguments that may have held a secret; with `prompts` redact the words too."""
    if not is_object(row):
        return row
    kept: dict[str, Any] = {name: value for name, value in row.items() if name != "arguments"}
    output = kept.get("output")
    if asked.prompts and isinstance(output, str) and output and not is_prompt(output):
        kept["output"] = placeholders.of("prompt", output)
    return kept
