"""Make a sealed tape of records: redact, normalise, encode

The same streams under the same rules give the same bytes, and sealing a sealed tape again returns it unchanged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object
from wiretape.events.tape.record import NO_KEYS, Record

from .matching.match import ComparedRequest, blank
from .normalize.normalize import normalise
from .redaction.plain_text import unreadable
from .redaction.redact import findings, redact, unmatched
from .redaction.shapes import find
from .redaction.user_rules import Redaction
from .sealed.sealed import encode, made_lines
from .sealed.texts import summed

__all__ = ["EXACT", "Rules", "began", "in_order", "seal"]

#: What normalising renames or resets, as the header names it.
_NORMALISED: Final = ("ids", "created", "fingerprint", "obfuscation", "request_ids", "rate_limits", "results", "ports")
#: Secrets whose places an error names.
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What sealing does to a recording."""

    #: Keep every byte. Refused for recordings with secrets, unless those are allowed.
    exact: bool = False
    secrets_allowed: bool = False
    #: Rename or reset what changes from one recording to the next.
    normalised: bool = True
    redaction: Redaction = field(default_factory=Redaction)
    #: Days after which `wiretape check` asks for a new recording.
    max_age_days: int | None = None


EXACT: Final = Rules(exact=True)


def seal(
    streams: Sequence[Sequence[Record]],
    rules: Rules | None = None,
    *,
    headers: Iterable[Mapping[str, Any]] = (),
) -> bytes:
    """Return the sealed tape. `headers` are those of the sealed tapes among them; the new one repeats their facts."""
    asked = rules or Rules()
    before = [header for header in headers if header]
    if asked.exact:
        if not asked.secrets_allowed:
            _refuse_secrets(streams)
        return _encoded(_header(streams, asked, before, exact=True), streams, asked)
    counted = [summed(records) for records in streams]
    done = redact(counted, asked.redaction)
    if asked.normalised:
        done = normalise(done)
    done = [_keyed(records) for records in done]
    pairs = zip(streams, done, strict=True)
    exact = all([record.raw for record in old] == [record.raw for record in new] for old, new in pairs)
    exact = exact and all(list(old) == new for old, new in zip(streams, counted, strict=True))
    sealed = _encoded(_header(done, asked, before, exact=exact), done, asked)
    if missed := unmatched(streams, asked.redaction):  # after a path that is a secret itself was refused
        raise TapeError(f"Nothing matches the path {missed[0]}, so nothing would be redacted there.")
    return sealed


def _encoded(header: Mapping[str, Any], streams: Sequence[Sequence[Record]], asked: Rules) -> bytes:
    """Encode without secrets in the lines made here: a header or a path may be the user's, a shown text may be cut."""
    data = encode(header, streams, hide=_until_secret)
    if asked.exact and asked.secrets_allowed:
        return data
    if any(number > 1 for number, _ in _secret_lines(data)):  # several texts of a fold line together
        data = encode(header, streams, hide=lambda _: "")
    for number, vendor in _secret_lines(data):
        where = "the header itself" if number == 1 else f"line {number}"
        raise TapeError(f"{where} would hold a secret, by its look one of {vendor}")
    return data


def _secret_lines(data: bytes) -> list[tuple[int, str]]:
    return [(number, hit.vendor) for number, line in made_lines(data) for hit in find(line.decode("utf-8", "replace"))]


def _until_secret(text: str) -> str:
    while hits := find(text):
        text = text[: hits[0].start]
    return text


def in_order(recordings: Iterable[Sequence[Record]]) -> list[Sequence[Record]]:
    """Return streams in the order in which they began."""
    return sorted(recordings, key=began)


def began(records: Sequence[Record]) -> int:
    """Return when a stream began, in microseconds since 1970."""
    keys = records[0].keys if records else NO_KEYS
    created, created_us = keys.get("created"), keys.get("created_us")
    if type(created_us) is int:
        return created_us
    return created * 1_000_000 if type(created) is int else 0


def _refuse_secrets(streams: Sequence[Sequence[Record]]) -> None:
    if found := findings(streams):
        counts = sorted(Counter(each.vendor for each in found).items())
        vendors = ", ".join(f"{vendor} {count}" for vendor, count in counts)
        places = [f"stream {each.stream + 1} record {each.n} {each.where}".rstrip() for each in found[:_NAMED_MAX]]
        where = ", ".join([*places, "..."] if len(found) > _NAMED_MAX else places)
        raise TapeError(f"An exact tape would hold {len(found)} secrets ({vendors}): {where}")
    if closed := unreadable(streams):
        raise TapeError(f"An exact tape may hold secrets: stream {closed[0].stream + 1}: {closed[0]}")


def _keyed(records: Sequence[Record]) -> list[Record]:
    """Add the key by which a replay finds the stream."""
    keyed = list(records)
    at = next((at for at, record in enumerate(records) if record.kind == "request"), None)
    if at is not None and all(isinstance(records[at].keys.get(name), str) for name in ("method", "path")):
        key = ComparedRequest.recorded(records, blank).key
        keyed[at] = records[at]._replace(keys={**records[at].keys, "key": key})
    return keyed


def _header(
    streams: Sequence[Sequence[Record]], rules: Rules, before: Sequence[Mapping[str, Any]], *, exact: bool
) -> dict[str, Any]:
    opened = [records[0].keys for records in streams if records]
    created = next((keys.get("created") for keys in opened), None)
    header: dict[str, Any] = {
        "exact": exact and all(header.get("exact") is not False for header in before),
        "recorded": _day(created),
        "streams": len(streams),
        "dialects": sorted({str(keys.get("dialect") or "exchange") for keys in opened}),
    }
    normalised = [*_NORMALISED] if rules.normalised and not rules.exact else []
    normalised += [name for old in before for name in _texts(old.get("normalised"))]
    redacted: dict[str, Any] = {}
    if not rules.exact:  # names, never values
        asked = rules.redaction
        redacted = {"rules": [*(["detector"] if asked.detector else []), "headers", "names", "shapes"]}
        redacted |= {"paths": sorted(asked.paths)} if asked.paths else {}
        redacted |= {"prompts": "sha256"} if asked.prompts else {}
    for old in (as_object(header.get("redacted")) for header in before):
        redacted = {**old, **redacted} | {
            name: sorted({*_texts(old.get(name)), *_texts(redacted.get(name))})
            for name in ("rules", "paths")
            if old.get(name) or redacted.get(name)
        }
    ages = (old.get("max_age_days") for old in before)
    age = rules.max_age_days or next((days for days in ages if type(days) is int and days > 0), None)
    more = {"normalised": sorted(set(normalised)), "redacted": redacted, "max_age_days": age}
    return header | {name: value for name, value in more.items() if value}


def _day(created: Any) -> str | None:
    try:
        return datetime.fromtimestamp(created, UTC).date().isoformat() if type(created) is int else None
    except (OSError, OverflowError, ValueError):  # no time of any calendar
        return None


def _texts(value: Any) -> list[str]:
    """Return the texts of a header's list, which may have been edited by hand."""
    return [name for name in as_list(value) if isinstance(name, str)]
