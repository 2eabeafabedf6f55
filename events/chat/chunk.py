"""Chat chunks: what canonical ones mean, how ours are built, and one under repair with the calls that it mentions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..core import model
from ..core.json_text import ABSENT, Boundary, Path, Places, as_list, as_object, dumps, is_object
from ..core.model import Event
from ..emission.frames import Edit, Out

__all__ = [
    "CALLS",
    "CALL_KEYS",
    "CHOICES",
    "CHUNK",
    "DONE",
    "LEGACY_CALL",
    "Draft",
    "Entry",
    "KnownCall",
    "call_delta",
    "chunk",
    "envelope",
    "events",
    "function_of",
    "has",
    "payloads",
    "says_content",
]

CHOICES: Final = "choices"
CHUNK: Final = "chat.completion.chunk"
DONE: Final = b"data: [DONE]\n\n"
#: Also the finish of an answer that calls tools.
CALLS: Final = "tool_calls"
CALL_KEYS: Final = (CALLS, "function_call")
_ENTRY_KEYS: Final = frozenset({"index", "id", "type", "function", "custom"})
#: The number of a legacy `function_call`; other calls of its choice count from 0.
LEGACY_CALL: Final = -1
#: As much of arguments as shows whether they are `{}`.
_HEAD_CHARS: Final = 4
_TEXTS: Final = (
    ("reasoning_content", model.ReasoningDelta),
    ("reasoning", model.ReasoningDelta),
    ("reasoning_text", model.ReasoningDelta),
    ("content", model.TextDelta),
    ("refusal", model.RefusalDelta),
)


# -- reading ----------------------------------------------------------------------------------------------------------


def has(choice: Any, key: str) -> bool:
    """Return whether a choice has an object under `key`: the `delta` of a chunk or the `message` of a whole answer."""
    return is_object(choice) and is_object(choice.get(key))


def says_content(delta: dict[str, Any]) -> bool:
    """Return whether a delta contains more than a role; unknown members are content too."""
    return any(delta[key] and key != "role" for key in delta)


def function_of(entry: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the member of an entry of `tool_calls` with its name and arguments, and whether the tool is a custom one.

    Gateways may write both members, one of them empty; then the type decides, or which of them says something.
    """
    function, custom, is_custom = entry.get("function"), entry.get("custom"), entry.get("type") == "custom"
    says = is_object(function) and bool(function.get("name") or function.get("arguments"))
    if is_object(custom) and (is_custom or not says):
        return custom, True
    return (function, False) if is_object(function) else (None, is_custom)


def events(value: dict[str, Any], n: int) -> list[Event]:
    """Return the events of one canonical chunk, deltas before the finish (Q13, Q43)."""
    found: list[Event] = []
    for choice in value["choices"]:
        index: int = choice["index"]
        delta: dict[str, Any] = choice["delta"]
        thought = ""
        for key, kind in _TEXTS:
            text = delta.get(key)
            if isinstance(text, str) and text and not (text == thought and kind is model.ReasoningDelta):
                found.append(kind(n=n, choice=index, text=text))
                thought = text if kind is model.ReasoningDelta else thought
        if delta.get("reasoning_details") or delta.get("extra_content"):
            found += _proofs(delta, n, index)
        if delta.get("audio"):
            found.append(model.AudioDelta(n=n, choice=index))
        if "tool_calls" in delta or "function_call" in delta:
            found += _calls(delta, n, index)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            found.append(model.Finish(n=n, choice=index, reason=reason))
    if counts := as_object(value.get("usage")):
        found.append(model.Usage(n=n, counts=counts))
    return found


def _proofs(delta: dict[str, Any], n: int, choice: int) -> Iterator[Event]:
    """Yield what a thought must come back with; details of a text alone repeat the reasoning."""
    entries = map(as_object, as_list(delta.get("reasoning_details")))
    if opaque := [entry for entry in entries if entry.get("signature") or entry.get("data")]:
        yield model.Proof(n=n, choice=choice, call=None, kind="reasoning_details", value=opaque)
    if delta.get("extra_content"):
        yield model.Proof(n=n, choice=choice, call=None, kind="extra_content", value=delta["extra_content"])


def _calls(delta: dict[str, Any], n: int, choice: int) -> Iterator[Event]:
    entries: list[Any] = [*(delta.get("tool_calls") or ())]
    if legacy := as_object(delta.get("function_call")):  # clients get it as it came (Q29); its life is that of any call
        said = {key: text for key, text in legacy.items() if isinstance(text, str)}
        start = {"id": f"function_call_{choice}"} if said.get("name") else {}
        entries.append({"index": LEGACY_CALL, **start, "function": said})
    for entry in entries:
        custom = "custom" in entry  # repair leaves one of both
        fields: dict[str, Any] = entry["custom"] if custom else entry.get("function") or {}
        name, arguments = fields.get("name"), fields.get("input" if custom else "arguments")
        if entry.get("extra_content"):  # Gemini's thought signature
            proof = entry["extra_content"]
            yield model.Proof(n=n, choice=choice, call=entry["index"], kind="extra_content", value=proof)
        if "id" in entry:
            call, call_id = entry["index"], entry["id"]
            yield model.ToolCallStarted(n=n, choice=choice, call=call, id=call_id, name=name or "", custom=custom)
        elif name:
            yield model.ToolNameDelta(n=n, choice=choice, call=entry["index"], name=name)
        if arguments:
            yield model.ToolArgumentsDelta(n=n, choice=choice, call=entry["index"], text=arguments)


# -- writing ----------------------------------------------------------------------------------------------------------


def envelope(id_: str = "", model_name: str = "", created: int = 0) -> dict[str, Any]:
    """Return the members that every chunk of one stream repeats."""
    return {"id": id_, "object": CHUNK, "created": created, "model": model_name}


def chunk(head: Mapping[str, Any], choice: int, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return a chunk of one choice; `head` is the envelope of its stream."""
    return {**head, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}


def call_delta(
    number: int, call_id: str = "", extras: Mapping[str, Any] | None = None, *, custom: bool, **said: str
) -> dict[str, Any]:
    """Return a delta about one call, its start if it has an id.

    A function takes `arguments`, a custom tool a free text as `input`.
    """
    member = "custom" if custom else "function"
    start = {"id": call_id, "type": member, **(extras or {})} if call_id else {}
    if custom and "arguments" in said:
        said["input"] = said.pop("arguments")
    return {"tool_calls": [{"index": number, **start, member: said}]}


def payloads(events: Iterable[Event], head: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a payload for each event that has a form in this dialect: a whole stream made from events."""
    roles: set[int] = set()
    custom: set[tuple[int, int]] = set()
    for event in events:
        delta: dict[str, Any] = {}
        match event:
            case model.TextDelta() | model.ReasoningDelta() | model.RefusalDelta():
                delta[next(key for key, kind in _TEXTS if type(event) is kind)] = event.text
            case model.ToolCallStarted():
                custom |= {(event.choice, event.call)} if event.custom else set()
                delta = call_delta(event.call, event.id, custom=event.custom, name=event.name, arguments="")
            case model.ToolNameDelta():
                delta = call_delta(event.call, custom=(event.choice, event.call) in custom, name=event.name)
            case model.ToolArgumentsDelta():
                delta = call_delta(event.call, custom=(event.choice, event.call) in custom, arguments=event.text)
            case model.Finish():
                pass
            case model.Usage():
                yield dumps({**head, "choices": [], "usage": event.counts})
                continue
            case model.Terminator():
                yield b"[DONE]"
                continue
            case model.UpstreamError():
                yield dumps({"error": {"message": event.message, "type": "upstream_error", "code": event.code}})
                continue
            case _:
                continue
        if event.choice not in roles:
            roles.add(event.choice)
            delta = {"role": "assistant", **delta}
        yield dumps(chunk(head, event.choice, delta, event.reason if isinstance(event, model.Finish) else None))


# -- repairing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class KnownCall:
    """A call under the dense number and the one id that the client sees."""

    number: int
    #: The upstream's index for it.
    place: int | None = None
    id: str = ""
    name: str = ""
    #: It takes free text, in which nothing is searched; unknown until an entry names what it calls.
    custom: bool | None = None
    #: The client may know it: id and name have both come (Q17).
    announced: bool = False
    #: A part of the call could not be read: it must not run.
    damaged: bool = False
    #: The upstream closed it without a byte of arguments, and they became `{}`.
    supplied: bool = False
    #: The same tool under another id, begun while this one had no arguments: perhaps this one under a new id.
    followed_by: "KnownCall | None" = None
    has_arguments: bool = False
    #: Their first characters after white space, and the last piece.
    head: str = ""
    last_piece: str = ""
    boundary: Boundary = field(default_factory=Boundary)
    #: All of them so far is one `{}`, which waits for what comes next (Q20).
    seed: bool = False
    #: They are `{}`, which was not left out.
    bare: bool = False
    #: What came before the name: pieces of arguments, and other members.
    early: list[str] = field(default_factory=list[str])
    early_chars: int = 0
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def unfinished(self) -> bool:
        """Its arguments have begun and are not whole."""
        return self.has_arguments and not self.boundary.complete

    def take(self, text: str) -> int | None:
        """Add a piece of arguments; return where in it a second value opens."""
        self.has_arguments = self.has_arguments or bool(text)
        if len(self.head) < _HEAD_CHARS:
            self.head = (self.head + text).lstrip()[:_HEAD_CHARS]
        return None if self.custom else self.boundary.feed(text)

    def delta(self, text: str) -> dict[str, Any]:
        if self.number == LEGACY_CALL:
            return {"function_call": {"arguments": text}}
        return call_delta(self.number, custom=bool(self.custom), arguments=text)

    def forget_seed(self) -> None:
        """Take the `{}` back: it was not an argument."""
        self.seed = self.bare = self.has_arguments = False
        self.head = ""
        self.boundary = Boundary()


class Entry:
    """An entry of `tool_calls`, read without trusting it: what cannot be used counts as absent."""

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        index, call_id = given.get("index"), given.get("id")
        self.path = path
        self.given = given
        self.index = index if type(index) is int else None
        self.id = call_id if isinstance(call_id, str) and call_id != "null" else ""  # Q4: the text "null"
        #: The member with the name and the arguments or, of a custom tool, the input.
        self.function, custom = function_of(given)
        self.settle(custom=custom)
        fields = self.function or {}
        name, arguments = fields.get("name"), fields.get(self.arguments)
        self.name = name if isinstance(name, str) else ""
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else dumps(arguments).decode()
        #: The arguments as the text that the client will see.
        self.text = arguments

    def settle(self, *, custom: bool) -> None:
        """Set the kind of tool: the member that is read, the one that is ignored, and the key of the arguments."""
        self.custom = custom
        self.member, self.other = ("custom", "function") if custom else ("function", "custom")
        self.arguments = "input" if custom else "arguments"

    @property
    def extras(self) -> dict[str, Any]:
        """The members that are not about the call itself."""
        return {key: value for key, value in self.given.items() if key not in _ENTRY_KEYS}

    def may_be_of(self, call: KnownCall) -> bool:
        """Return whether entry and call are both of a function or both of a custom tool; metadata may be of either."""
        return self.function is None or call.custom in (None, self.custom)


class Draft:
    """One chunk under repair. Its value stays as it came; changes are collected, at most one per member."""

    def __init__(self, value: dict[str, Any], head: Mapping[str, Any], out: Out) -> None:
        self.n = out.n
        self.value = value
        self.head = head
        #: The frame that carries it.
        self.out = out
        #: Chunks of ours that go out before and after this one.
        self.before: list[Out] = []
        self.after: list[Out] = []
        self.events: list[Event] = []
        #: Repairs that only note something.
        self.flags: list[str] = []
        #: It has more than text of an open choice, or something that may be repaired otherwise when it comes again.
        self.unique = False
        #: A choice of this chunk finished.
        self.finished = False
        #: The upstream's finish reason, if it is one that reports a failure.
        self.failure = ""
        #: What decides about arguments of this chunk that may be mere seeds (Q20).
        self.seeds: list[Callable[[], None]] = []
        #: The last entry of this chunk for each call that it mentions.
        self.touched: dict[KnownCall, Entry] = {}
        self.edits: dict[tuple[Path, str | int], Edit] = {}
        self._places: Places | None = None

    def ours(self, repair: str, choice: int, delta: dict[str, Any], finish: str | None = None) -> Out:
        """Return a chunk of ours for `before` or `after`."""
        return Out(self.n, chunk(self.head, choice, delta, finish), repair=repair)

    def set(self, repair: str, path: Path, key: str, value: Any) -> None:
        """Replace or insert a member."""
        self.edits[path, key] = Edit(repair, path, key, value)

    def drop(self, repair: str, path: Path, key: str | int) -> None:
        """Remove a member, or an element of the list at `path`."""
        self.edits[path, key] = Edit(repair, path, key, ABSENT)

    def quote(self, repair: str, path: Path, key: str) -> None:
        """Replace a value by a string with its own JSON text: 12 by "12"."""
        self._places = self._places or Places(self.out.payload or dumps(self.value))
        self.set(repair, path, key, self._places.text((*path, key)).decode())

    def touch(self, call: KnownCall, entry: Entry) -> None:
        """Note the entry of a call, whose arguments must be text (Q18)."""
        self.touched[call] = entry
        if entry.function is not None and not isinstance(entry.function.get(entry.arguments, ""), str | None):
            self.quote("arguments_not_text", (*entry.path, entry.member), entry.arguments)

    def say(self, entry: Entry, repair: str, key: str, text: str) -> None:
        """Set the name or the arguments of an entry of `tool_calls`."""
        if entry.function is None:
            self.set(repair, entry.path, entry.member, {key: text})
        elif entry.function.get(key) == text:  # leave it as it came after all
            self.edits.pop(((*entry.path, entry.member), key), None)
        else:
            self.set(repair, (*entry.path, entry.member), key, text)
