"""Requests from tapes and clients, prepared to be compared."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, dumps
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import reads

from ..playback.player import headers_to_send
from ..playback.script import Request
from ..redaction.plain_text import plain_body
from ..redaction.redact import blanked, blanked_path, redact
from ..redaction.user_rules import Redaction
from ..sealed.sealed import asked_keys
from .key import (
    IDS,
    Canonical,
    canonical,
    exact,
    exact_key_of,
    fits,
    key_of,
    loose_key_of,
    prefix_of,
    route_of,
    without_boundary,
)

__all__ = ["ComparedRequest", "Prepare", "Unlike", "blank", "ids_given_out", "prepare_of", "request_of"]

#: Redact a request as a recording was redacted.
Prepare = Callable[[Request], Request]

#: A member of a response that names something; inside a string its quotes would be escaped.
_GIVEN_ID: Final = re.compile(
    rb'"(?:%b)"\s*:\s*"([^"\\]{1,256})"' % "|".join(sorted({*IDS, "message_id", "response_id"})).encode()
)


def request_of(records: Sequence[Record]) -> Request:
    """Return the request of a stream, as far as the tape contains it."""
    request = next((record for record in records if record.kind == "request"), None)
    if request is None:
        raise TapeError("a stream without its request cannot be matched")
    body = request.raw or b"".join(record.raw or b"" for record in records if record.kind == "upload")
    method, path = (str(request.keys.get(name, "")).encode("latin-1", "replace") for name in ("method", "path"))
    return Request(method, path, headers_to_send(request.keys), body)


def ids_given_out(records: Sequence[Record]) -> frozenset[str]:
    """Return the ids that the response of a stream names."""
    body = b"".join(data for _, data in reads(records))
    return frozenset(found[1].decode("utf-8", "replace") for found in _GIVEN_ID.finditer(body))


def blank(request: Request) -> Request:
    """Remove compression and secrets from a body, because another client has another secret."""
    request = _decoded(request)
    return request._replace(body=blanked(request.body)) if request.body else request


def _decoded(request: Request) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return request._replace(body=plain_body(headers, request.body)) if request.body else request


def prepare_of(header: Mapping[str, Any]) -> Prepare:
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


class Unlike(NamedTuple):
    """What differs between two requests with one key."""

    volatile: bool = False
    #: An id that these recordings contain.
    ids: bool = False
    #: Both continue responses of these recordings, but not the same one.
    continues_another: bool = False


class ComparedRequest:
    """One request in the forms by which it is compared; each is made when it is first needed."""

    def __init__(self, request: Request, prepare: Prepare = blank, sha256: str = "") -> None:
        """`sha256` is the hash of a body that was not kept."""
        self._original = request
        self._sha256 = sha256
        self._prepare = prepare
        self._under: dict[Prepare, ComparedRequest] = {prepare: self}
        self.place = request.method.decode("latin-1"), blanked_path(request.target.decode("latin-1"))
        self.hashed = bool(sha256)
        self.route = route_of(*self.place)
        self.prefix = prefix_of(self.place[1])

    @staticmethod
    def recorded(records: Sequence[Record], prepare: Prepare) -> "ComparedRequest":
        """Return the recorded request of a stream."""
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
        """The redacted body."""
        return self._prepare(self._original).body

    @cached_property
    def key(self) -> str:
        """The key."""
        return exact_key_of(*self.place, self._sha256) if self.hashed else key_of(*self.place, self.body)

    @cached_property
    def loose_key(self) -> str:
        """The key by which to search if no recording has the key."""
        return "" if self.hashed else loose_key_of(*self.place, self.body)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The form that decides the key."""
        return canonical(*self.place, self.body).value

    @cached_property
    def plain(self) -> Canonical:
        """The same with volatile values, which distinguish requests with one key."""
        return canonical(*self.place, self.body, "plain")

    @cached_property
    def exact(self) -> dict[str, Any]:
        """The form in which everything counts."""
        return exact(*self.place, self.body)

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

    def unlike(self, sent: "ComparedRequest", given: Callable[[str], bool]) -> Unlike:
        """Return what differs besides the key; `given` knows the ids in these recordings."""
        if self.hashed:
            return Unlike()
        sent = sent.like(self)
        pairs = zip(self.plain.ids, sent.plain.ids, strict=False)
        others = {other for mine, other in pairs if mine != other and given(other)}
        return Unlike(self.plain.value != sent.plain.value, bool(others), not others.isdisjoint(sent.plain.answers))
