"""Replace the secrets of a file. Each text is searched once, joined with the pieces it was streamed in.

The same secret has the same placeholder, numbered by first use, wherever in the file it is. JSON stays JSON; numbers,
ids and hashes are never touched. Headers pass an allow-list.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import Edit, as_list, as_object, dumps, is_list, is_object, parse
from wiretape.events.dialects import PLACES
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record
from wiretape.proxy.key_patterns import masked_path
from wiretape.proxy.security.headers import TAPED_ANSWER, TAPED_ANSWER_PREFIXES, TAPED_REQUEST

from ..sealed.texts import ASKED, Path, Text, edited, texts
from .plain_text import Joined, joined_texts, opened, pieces_of
from .shapes import (
    BEFORE,
    CLOSERS,
    PLACEHOLDER,
    Hit,
    find,
    is_secret_number,
    is_telling,
    keys,
    merged,
    names_of,
    search,
)
from .user_rules import Redaction, is_prompt, matches, pattern_of, words

__all__ = ["Finding", "blanked", "blanked_path", "findings", "redact", "shown_path", "unmatched"]

#: How a placeholder is written: as it is, as a JSON string, or as arguments of a tool.
_Form = Literal["plain", "json", "arguments"]
#: Returns what replaces a vendor's secret.
_Place = Callable[[str, str], str]
#: Removing one secret may reveal another next to it, so the search repeats until it finds nothing.
_PASSES_MAX: Final = 6
_NAMES_NUMBERS: Final = re.compile(rb"(?i)pass|pwd|secret|api.?key")
_REDACTED: Final = re.compile(rf'{PLACEHOLDER.pattern}|\{{"redacted":"{PLACEHOLDER.pattern}"\}}')
#: Records whose keys describe their bytes alone.
_CARRIERS: Final = RECEIVED | {"upload"}
_OF_BYTES: Final = frozenset({"cuts", "event", "sse"})

#: Secrets that only their name revealed: no shape finds them elsewhere.
_BY_NAME: Final = frozenset({"password", "secret"})
#: Not secrets by themselves, or secrets by the user's choice in one place only.
_IN_PLACE: Final = frozenset({"bytes", "digits", "logprobs", "path", "prompt"})
#: A shorter one occurs by chance in other text.
_KNOWN_CHARS: Final = 8
#: In one file, the longest first: each is searched for in every text, at a gigabyte a second.
_KNOWN_MAX: Final = 1_000
#: Members with words of the protocol.
_PROTOCOL: Final = frozenset(
    {"dialect", "event", "method", "model", "object", "profile", "role", "status", "type"}
).union(*(places.words.reasons for places in PLACES.values()))
_AFTER: Final = r"(?![A-Za-z0-9])"
_BEGINS: Final = re.compile(BEFORE)


class Finding(NamedTuple):
    """The place of a secret: its stream, record, vendor, and the path or the key that holds it."""

    stream: int
    n: int
    vendor: str
    where: str


# -- files ------------------------------------------------------------------------------------------------------------


def redact(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[list[Record]]:
    """Return the streams of one file without secrets, their bodies decoded. Redacted streams are returned unchanged."""
    plain = opened(streams)
    return _redacted(plain, redaction or Redaction(), _Placeholders(plain).of)


def findings(streams: Sequence[Sequence[Record]], redaction: Redaction | None = None) -> list[Finding]:
    """Return the places that `redact` would change."""
    plain = opened(streams, numbered=False)
    known = _known_from_keys(plain)
    searches = [_Search(records, redaction or Redaction(), known) for records in plain]
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
        for scalar in (scalar for text in texts(records) for scalar in text.scalars):
            left = {path: pattern for path, pattern in left.items() if not matches(pattern, scalar.path)}
    return [*left]


def blanked(body: bytes) -> bytes:
    """Return a request's body with placeholders without numbers: the same for the recorded one and for a live one."""
    [[blank]] = _redacted([[Record(0, 0, "request", NO_KEYS, body)]], Redaction(), _unnumbered)
    return _without_numbers((blank.raw or b"").decode("latin-1")).encode("latin-1")


def blanked_path(path: str) -> str:
    """Return the path of a request with placeholders without numbers."""
    return _without_numbers(_cleaned(path, "path", _unnumbered, _Known()))


def shown_path(target: bytes) -> str:
    """Return path and query of a request on one line, without secrets, for messages."""
    return blanked_path(masked_path(target))


def _unnumbered(vendor: str, _: str) -> str:
    return f"[redacted-{vendor}]"


def _without_numbers(text: str) -> str:
    return PLACEHOLDER.sub(lambda match: f"[redacted-{match[1]}]", text)


def _redacted(streams: Sequence[Sequence[Record]], asked: Redaction, place: _Place) -> list[list[Record]]:
    """Replace until nothing is found; a secret of one stream is replaced in all of them."""
    known = _known_from_keys(streams)
    new = [list(records) for records in streams]
    left: Sequence[int] = range(len(new))
    for _ in range(_PASSES_MAX):
        count = known.count
        searches = [(number, _Search(new[number], asked, known)) for number in left]
        changed: list[int] = []
        for number, one in searches:
            if spans := one.spans(known):
                changed.append(number)
                new[number] = edited(new[number], _changes(one.texts, spans, place))
        left = range(len(new)) if known.count > count else changed
        if not left:
            return [_with_keys(*pair, asked, place, known) for pair in zip(streams, new, strict=True)]
    raise TapeError("Cannot redact this recording: each pass finds another secret. Please report this as a bug.")


class _Placeholders:
    """Placeholders of one file, numbered by first use. Existing ones keep their numbers."""

    def __init__(self, streams: Sequence[Sequence[Record]]) -> None:
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
        if (vendor, secret) not in self._known:
            number = self._count[vendor] = self._count.get(vendor, 0) + 1
            self._known[vendor, secret] = f"[redacted-{vendor}-{number}]"
        return self._known[vendor, secret]


# -- secrets of one file ----------------------------------------------------------------------------------------------


class _Known:
    """Secrets found somewhere in a file, looked for everywhere: whole, and their beginning where a text ends inside one

    `{"password":"..."}` names its value; in a sentence the same value has no name. A stream may stop inside any secret.
    """

    def __init__(self) -> None:
        #: Vendor by secret, the longest first.
        self._all: dict[str, str] = {}

    @property
    def count(self) -> int:
        return len(self._all)

    def add(self, vendor: str, secret: str) -> None:
        is_word = len(secret) < _KNOWN_CHARS or secret.isalpha()
        if not is_word and vendor not in _IN_PLACE and secret not in self._all and len(self._all) < _KNOWN_MAX:
            some = {**self._all, secret: vendor}
            self._all = {each: some[each] for each in sorted(some, key=lambda each: (-len(each), each))}

    def within(self, texts: Iterable[str]) -> "re.Pattern[str] | None":
        """Return a pattern of the secrets in these texts. It never matches inside a longer word."""
        text = "\0".join(texts) if self._all else ""
        found = [
            f"{BEFORE if secret[0].isalnum() else ''}{re.escape(secret)}{_AFTER if secret[-1].isalnum() else ''}"
            for secret in self._all
            if secret in text
        ]
        return re.compile("|".join(found)) if found else None

    def hits(self, text: str, name: str, *, here: "re.Pattern[str] | None", request: bool = False) -> Iterator[Hit]:
        """Yield the secrets of a text, and the secret it ends inside of, unless they are words of the protocol.

        In a request an incomplete one gets a placeholder that any text matches: a client that repeats the request has
        no more of the secret than this.
        """
        if name in _PROTOCOL:
            return
        ours = [match.span() for match in PLACEHOLDER.finditer(text)]
        ends = [last for _, last in ours]
        for match in here.finditer(text) if here else ():
            at = bisect_right(ends, match.start())
            if at == len(ours) or match.end() <= ours[at][0]:
                yield Hit(*match.span(), self._all[match[0]], match[0])
        if (hit := self._incomplete(text)) is not None:
            yield hit._replace(vendor="secret") if request else hit

    def _incomplete(self, text: str) -> Hit | None:
        begins = [secret for secret in self._all if secret[:_KNOWN_CHARS] in text]
        for end in sorted({len(text), len(text.rstrip(CLOSERS))}, reverse=True) if begins else ():
            for secret in begins:
                start = text.rfind(secret[:_KNOWN_CHARS], 0, end)
                begun = text[start:end]
                if start >= 0 and begun != secret and secret.startswith(begun) and is_telling(begun):
                    inside_a_word = begun[0].isalnum() and _BEGINS.match(text, start) is None
                    return None if inside_a_word else Hit(start, end, self._all[secret], secret)
        return None

    def whole(self, vendor: str, secret: str) -> str:
        """Return the longest known secret with this beginning: a key may grow from frame to frame."""
        if vendor in _BY_NAME:
            return secret
        return next((each for each in self._all if self._all[each] == vendor and each.startswith(secret)), secret)


# -- bytes of one stream ----------------------------------------------------------------------------------------------


class _Span(NamedTuple):
    """Bytes of one text to replace, and the secret; None for a piece after the first, which becomes empty."""

    text: int
    start: int
    end: int
    path: Path
    vendor: str
    secret: str | None
    form: _Form = "plain"


class _Search:
    """The secrets of one stream: those of its own at once, those known from elsewhere in the file with `spans`."""

    def __init__(self, records: Sequence[Record], asked: Redaction, known: _Known) -> None:
        self.texts = texts(records)
        self._taken: dict[int, list[_Span]] = {}
        self._asked = asked
        self._streamed = [*joined_texts(records, self.texts)]
        #: Texts, their names, and whether each was streamed as a piece of another one.
        self._searched = [(each, names_of([(each.pieces[0].path, "", False)])[0], False) for each in self._streamed]
        inside = {(piece.text, piece.places[0]) for joined in self._streamed for piece in joined.pieces}
        for number, text in enumerate(self.texts):
            pieces = [*pieces_of(text, number)]
            names = names_of([(piece.path, piece.said, piece.name) for piece in pieces])
            self._searched += [
                (Joined.of([piece]), name, (number, piece.places[0]) in inside)
                for piece, name in zip(pieces, names, strict=True)
            ]
        self._take_user_rules()
        self._take_secrets()
        for span in (span for spans in self._taken.values() for span in spans if span.secret is not None):
            known.add(span.vendor, span.secret or "")

    def spans(self, known: _Known) -> list[_Span]:
        """Return what to replace, in order: also the secrets `known` from elsewhere."""
        here = known.within(joined.said for joined, _, _ in self._searched)
        for joined, name, _ in self._searched if known.count else ():
            first = joined.pieces[0]
            if not (first.name and first.said.replace("_", "").isalpha()):  # as programs name members
                request = self.texts[first.text].kind in ASKED
                self._take(joined, search(joined.said, name, partial(known.hits, here=here, request=request)))
        if self._taken:
            self._take_logprobs()
        return [
            span if span.secret is None else span._replace(secret=known.whole(span.vendor, span.secret))
            for number in sorted(self._taken)
            for span in self._taken[number]
        ]

    def _take_secrets(self) -> None:
        for joined, name, streamed in self._searched:
            # A piece of a streamed text was searched with the others; alone it may hide a key from a word before it.
            hits: Iterable[Hit] = keys(joined.said) if streamed else find(joined.said, name)
            if self._asked.detector and not streamed:
                hits = merged([*hits, *search(joined.said, name, self._detected)])
            self._take(joined, hits)
        for number, text in enumerate(self.texts):
            for scalar in text.scalars if _NAMES_NUMBERS.search(text.raw) else ():
                digits = text.json[scalar.start : scalar.end].decode("latin-1")
                if scalar.sort == "other" and scalar.path and is_secret_number(str(scalar.path[-1]), digits):
                    start = text.place(scalar.start)
                    self._add(_Span(number, start, start + len(digits), scalar.path, "secret", digits, "json"))

    def _detected(self, text: str, _: str) -> Iterator[Hit]:
        for secret in (self._asked.detector(text) or ()) if self._asked.detector else ():
            if secret and PLACEHOLDER.search(secret) is None:
                yield from (Hit(*match.span(), "secret", secret) for match in re.finditer(re.escape(secret), text))

    def _take(self, joined: Joined, hits: Iterable[Hit]) -> None:
        for hit in hits:
            secret: str | None = hit.secret
            for piece, start, end in joined.parts(hit.start, hit.end):
                self._add(_Span(piece.text, start, end, piece.path, hit.vendor, secret))
                secret = None

    def _add(self, span: _Span) -> None:
        """Add a span, unless something there is taken already."""
        others = self._taken.setdefault(span.text, [])
        at = bisect_left(others, span.start, key=lambda other: other.start)
        if (at == 0 or others[at - 1].end <= span.start) and (at == len(others) or span.end <= others[at].start):
            others.insert(at, span)

    def _take_user_rules(self) -> None:
        patterns = [pattern_of(path) for path in self._asked.paths]
        streamed = self._streamed if patterns else []
        streams = {(piece.text, piece.places[0]): joined for joined in streamed for piece in joined.pieces}
        replaced: set[int] = set()
        for number, text in enumerate(self.texts):
            for scalar in text.scalars if patterns else ():
                if scalar.sort in ("name", "torn") or not any(matches(each, scalar.path) for each in patterns):
                    continue
                token = text.json[scalar.start : scalar.end]
                value = parse(token)
                said = value if isinstance(value, str) else token.decode("utf-8", "replace")
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
            if self._asked.prompts and text.kind in ASKED:
                for each in words(text):
                    self._add(_Span(number, each.start, each.end, each.path, "prompt", each.said, each.form))

    def _take_logprobs(self) -> None:
        """Empty the tokens next to a secret, and their bytes, which repeat it."""
        for number, spans in [*self._taken.items()]:
            text = self.texts[number]
            around = {span.path[:depth] for span in spans for depth in range(len(span.path) + 1)}
            for scalar in text.scalars if b'"logprobs"' in text.raw else ():
                path = scalar.path
                if "logprobs" not in path or path[: path.index("logprobs")] not in around:
                    continue
                start, end = text.place(scalar.start), text.place(scalar.end)
                if scalar.sort == "string" and path[-1] == "token" and end - start > len('""'):
                    self._add(_Span(number, start + 1, end - 1, path, "logprobs", None))
                elif scalar.sort == "other" and path[-2:-1] == ("bytes",):
                    self._add(_Span(number, start, end, path, "bytes", None))


def _changes(parts: Sequence[Text], spans: Iterable[_Span], place: _Place) -> list[tuple[Text, Sequence[Edit]]]:
    by_text: dict[int, list[Edit]] = {}
    for span in spans:
        new = place(span.vendor, span.secret) if span.secret is not None else ""
        is_number = span.vendor == "bytes" or (span.vendor == "digits" and span.secret is not None)
        change = Edit(span.start, span.end, b"0" if is_number else _written(new, span.form))
        by_text.setdefault(span.text, []).append(change)
    return [(parts[number], changes) for number, changes in by_text.items()]


def _written(new: str, form: _Form) -> bytes:
    match form:
        case "arguments":  # clients parse them
            return dumps(dumps({"redacted": new}).decode())
        case "json":  # the value with its quotes
            return dumps(new)
        case "plain":
            return new.encode()


def _record_at(records: Sequence[Record], text: Text, place: int) -> int:
    """Return the number of the record that holds this byte of a text."""
    ends = accumulate(len(records[at].raw or b"") for at in text.of)
    return next(records[at].n for at, end in zip(text.of, ends, strict=True) if place < end)


def _shown(path: Path) -> str:
    """Return a path without names that are secrets themselves."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    for hit in reversed(find(said)):
        said = said[: hit.start] + said[hit.end :]
    return said


# -- keys of records --------------------------------------------------------------------------------------------------


def _with_keys(
    old: Sequence[Record], new: Sequence[Record], asked: Redaction, place: _Place, known: _Known
) -> list[Record]:
    bodies = [[record.raw for record in records if record.kind == "request"] for records in (old, new)]
    without_hashes = asked.prompts or bodies[0] != bodies[1]
    done: list[Record] = []
    for record in new:
        if record.kind in _CARRIERS and not record.keys.keys() - _OF_BYTES:
            done.append(record)
            continue
        keys = {
            name: value if name in _OF_BYTES else _cleaned(value, name, place, known)
            for name, value in record.keys.items()
        }
        if record.kind == "open":
            keys.pop("caller", None)  # a hash of a credential
        if record.kind in ("request", "head") and "headers" in keys:
            # Cleaned again: values that were no text have become text.
            keys["headers"] = _cleaned(_allowed(record.kind, keys["headers"]), "headers", place, known)
        if record.kind == "results" and without_hashes:
            keys["results"] = [_result(row, asked, place) for row in as_list(keys.get("results"))]
        if record.kind == "history" and asked.prompts:
            keys.pop("edits", None)  # words, and places in words that are gone
        if record.kind == "attempt" and "crossing" in keys:
            keys["crossing"] = _without_echo(keys["crossing"], asked)
        done.append(record._replace(keys=keys or NO_KEYS) if keys != record.keys else record)
    return done


def _without_echo(crossing: Any, asked: Redaction) -> Any:
    """Drop members that repeat what the user redacts in the request."""
    if not is_object(crossing):
        return crossing
    patterns = [pattern_of(path) for path in asked.paths]
    named = {pattern[0] for pattern in patterns if pattern}
    kept = {
        name: value
        for name, value in as_object(crossing.get("echo")).items()
        if not asked.prompts and named.isdisjoint((name, "*"))
    }
    return {**crossing, "echo": kept}


def _known_from_keys(streams: Sequence[Sequence[Record]]) -> _Known:
    known, nothing = _Known(), _Known()
    for record in (record for records in streams for record in records if record.kind not in _CARRIERS):
        for vendor, secret, _ in _in_keys(record, nothing):
            known.add(vendor, secret)
    return known


def _in_keys(record: Record, known: _Known) -> Iterator[tuple[str, str, str]]:
    """Yield vendor, secret and key of each secret in the keys of a record."""
    for where, value in record.keys.items():
        noted: list[tuple[str, str]] = []

        def note(vendor: str, secret: str, noted: list[tuple[str, str]] = noted) -> str:
            noted.append((vendor, secret))
            return ""

        if where not in _OF_BYTES:
            _cleaned(value, where, note, known)
        yield from ((vendor, secret, where) for vendor, secret in noted)


def _cleaned(value: Any, name: str, place: _Place, known: _Known) -> Any:
    """Return a key's value with its secrets replaced; `headers` are pairs, each under its own name."""
    if isinstance(value, str):
        hits = find(value, name)
        if known.count:
            hits = merged([*hits, *known.hits(value, name, here=known.within([value]), request=True)])
        said, at = "", 0
        for hit in hits:
            said += value[at : hit.start] + place(hit.vendor, known.whole(hit.vendor, hit.secret))
            at = hit.end
        return said + value[at:]
    if is_object(value):
        return {_cleaned(key, "", place, known): _cleaned(each, key, place, known) for key, each in value.items()}
    if not is_list(value):
        return value
    if name != "headers":
        return [_cleaned(each, name, place, known) for each in value]
    done: list[Any] = []
    for pair in value:
        match pair:
            case [str(header), str(said)]:
                done.append([header, _cleaned(said, header, place, known)])
            case _:
                done.append(_cleaned(pair, "", place, known))
    return done


def _allowed(kind: str, headers: Any) -> list[list[str]]:
    """Return the headers that the proxy would have recorded; other recorders keep all."""
    names, prefixes = (TAPED_REQUEST, ()) if kind == "request" else (TAPED_ANSWER, TAPED_ANSWER_PREFIXES)
    kept: list[list[str]] = []
    for row in as_list(headers):
        if is_list(row) and len(row) == 2:
            name, value = (str(each).encode("latin-1", "replace") for each in row)
            if name.lower() in names or name.lower().startswith(prefixes):
                kept.append([name.lower().decode("latin-1"), value.decode("latin-1")])
    return kept


def _result(row: Any, asked: Redaction, place: _Place) -> Any:
    """Drop the hash of arguments that may have held a secret; with `prompts` redact the words too."""
    if not is_object(row):
        return row
    kept: dict[str, Any] = {name: value for name, value in row.items() if name != "arguments"}
    output = kept.get("output")
    if asked.prompts and isinstance(output, str) and output and not is_prompt(output):
        kept["output"] = place("prompt", output)
    return kept
