"""What one request asks for, once it has been let in: where it goes, what is sent, and how its answer is emitted."""

from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from wiretape.events.chat.hygiene import Found
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import is_object
from wiretape.events.core.settings import Facts, Settings
from wiretape.events.core.splice import Action, Edit, Op, apply, locate

from ..config.model import Route
from ..http_headers import Header

__all__ = ["Order", "cleaned", "facts_of", "history_keys", "settings_for", "unstreamed", "with_usage"]

_ON_PARTIAL: Final = frozenset({"error", "warn", "both"})
_TOOLS: Final = frozenset({"live", "held"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Made before the stream begins, and never changed."""

    route: Route
    #: `chat`, or empty for an exchange that is relayed as it is.
    dialect: str
    method: str
    #: Raw path behind `/v1`, and the raw query.
    tail: bytes
    query: bytes
    #: As the client sent them.
    headers: Sequence[Header]
    #: Bytes can be sent again; what is streamed cannot.
    body: bytes | AsyncIterable[bytes]
    #: The body parsed, where it is JSON that we read.
    asked: Any
    facts: Facts
    settings: Settings
    caller: str
    #: Its client said that it will come back.
    resumes: bool = False
    #: Path as it may stand on the tape.
    path: str = ""
    #: Markers and warnings of ours in the history that was sent.
    history: Sequence[Found] = ()
    #: What is taken out of the body (or of what it says) before it goes upstream.
    cleaning: Sequence[Edit] = ()
    #: What the body says, where it came compressed; what is edited is this, and goes upstream as it is.
    plain: bytes | None = None
    #: The credential was for Wiretape, and goes no further.
    own_key: bool = False

    @property
    def streams(self) -> bool:
        """A chat stream was asked for."""
        return self.dialect == "chat" and self.facts.stream

    @property
    def verbatim(self) -> bool:
        """The answer passes as it comes: nothing is held, and a cut is passed on as a cut."""
        return self.dialect != "chat" or self.settings.profile == "transparent"


def facts_of(asked: Any) -> Facts:
    """What emission must know of a chat request."""
    return facts(asked)


def settings_for(route: Route, headers: Mapping[bytes, bytes]) -> Settings:
    """The route's, with what this request chose for itself; a word that we do not know changes nothing."""
    given = route.settings
    on_partial = headers.get(b"x-wiretape-on-partial", b"").decode("latin-1").strip().lower()
    tools = headers.get(b"x-wiretape-tools", b"").decode("latin-1").strip().lower()
    off = any(
        headers.get(name, b"").strip().lower() == b"off"
        for name in (b"x-wiretape-tool-events", b"x-hermes-tool-progress")
    )
    chosen: dict[str, Any] = {}
    if on_partial in _ON_PARTIAL:
        chosen["on_partial"] = on_partial
    if tools in _TOOLS:
        chosen["tools"] = tools
    if off:
        chosen["tool_events"] = False
    return replace(given, **chosen) if chosen else given


def cleaned(order: Order, body: bytes) -> bytes:
    """The body as it goes upstream, where its history is repaired."""
    return apply(body, order.cleaning) if order.cleaning else body


def history_keys(order: Order, *, whole: bool) -> dict[str, Any]:
    """As the `history` record says it; `whole` with the edits, which hold what was said: with the body in `request` the
    tape then has both what came and what was sent.
    """
    marks = [
        {
            "path": [*one.path, one.key],
            "markers": one.markers,
            "warnings": one.warnings,
            "repaired": one.repairable and bool(order.cleaning),
        }
        for one in order.history
    ]
    edits = [[edit.start, edit.end, edit.new.decode("utf-8", "replace")] for edit in order.cleaning]
    return {"marks": marks, "edits": edits} if edits and whole else {"marks": marks}


def with_usage(body: bytes, asked: Any) -> bytes:
    """The body, asking for a usage chunk too. Where it says nothing of them it is not read: 20 MB take 0.2 s."""
    if is_object(asked) and "stream_options" not in asked:
        behind = body.index(b"{") + 1
        return b'%b"stream_options":{"include_usage":true},%b' % (body[:behind], body[behind:])
    if is_object(asked) and is_object(asked.get("stream_options")):
        return _edited(body, Op("include_usage", ("stream_options",), Action.SET, "include_usage", b"true"))
    return _edited(body, Op("include_usage", (), Action.SET, "stream_options", b'{"include_usage":true}'))


def unstreamed(body: bytes) -> bytes:
    """The body, asking for a whole answer instead of a stream."""
    dropped = _edited(body, Op("unstreamed", (), Action.DROP, "stream_options"))
    return _edited(dropped, Op("unstreamed", (), Action.SET, "stream", b"false"))


def _edited(body: bytes, op: Op) -> bytes:
    return apply(body, locate(body, [op]))
