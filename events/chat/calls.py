"""Tool calls of one choice: which call a delta belongs to, and what each delta must say (dialect catalogue 1.1).

A call is known by neither index nor id alone. The key is the index, unless a new call starts there: a new id together
with a name, and either the arguments so far are whole JSON or there are none (Q6 against Q7). Without an index, the id,
the arrival of a name, or else the last call decides (Q9, Q10). Without id and name, a second whole JSON value is a new
call of the same tool (Q8).
"""

from typing import Any, Final, NamedTuple

from ..json_text import Boundary, as_object, dumps, is_object
from ..model import Event, ToolCallStarted
from ..splice import Action, Op, Path
from .write import Envelope, chunk

__all__ = ["Calls", "KnownCall", "Work"]

#: Arguments of one whole object without members, or a seed that real fragments will follow (Q20, Q25).
_SEED: Final = "{}"


class Work:
    """One chunk under repair: what to change in it, and what comes out beside it."""

    __slots__ = ("after", "base", "before", "envelope", "events", "failure", "flags", "n", "ops", "seeds", "value")

    def __init__(self, n: int, value: dict[str, Any], envelope: Envelope, *, base: int = 0) -> None:
        self.n = n
        #: Where the chunk's frame stands among the bytes of its record.
        self.base = base
        self.value = value
        self.envelope = envelope
        self.ops: list[Op] = []
        #: Frames of our own that go before and behind the chunk: the name of the repair and the payload.
        self.before: list[tuple[str, bytes]] = []
        self.after: list[tuple[str, bytes]] = []
        self.events: list[Event] = []
        self.flags: list[str] = []
        #: The upstream's finish was one that says it failed.
        self.failure = ""
        #: Where arguments stand that may be mere seeds, and whose.
        self.seeds: list[tuple[Path, KnownCall]] = []

    def op(self, repair: str, path: Path, action: Action, key: str = "", value: bytes = b"") -> None:
        """One more change."""
        self.ops.append(Op(repair, path, action, key, value))


class Entry(NamedTuple):
    """One entry of `tool_calls`, read without trusting it: what is not usable counts as absent."""

    #: Its `index`; the name would hide a method of tuples.
    place: int | None
    id: str
    name: str
    arguments: Any
    function: dict[str, Any]

    @staticmethod
    def of(entry: dict[str, Any]) -> "Entry":
        """From the JSON object."""
        index, call_id = entry.get("index"), entry.get("id")
        function: Any = entry.get("function")
        fields: dict[str, Any] = as_object(function)
        name = fields.get("name")
        return Entry(
            index if type(index) is int else None,
            call_id if isinstance(call_id, str) and call_id != "null" else "",  # Q4: the text "null"
            name if isinstance(name, str) else "",
            fields.get("arguments"),
            fields,
        )

    @property
    def text(self) -> str:
        """The arguments as the text that the client will see."""
        if isinstance(self.arguments, str):
            return self.arguments
        return "" if self.arguments is None else dumps(self.arguments).decode()


class KnownCall:
    """A call under the dense number and the one id that the client sees."""

    __slots__ = (
        "announced",
        "boundary",
        "early_text",
        "has_arguments",
        "id",
        "name",
        "number",
        "seed",
        "seed_dropped",
        "touched",
        "touched_by",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        #: The client may know it: id and name are both there (Q17).
        self.announced = False
        self.has_arguments = False
        #: All its arguments so far are one `{}` that waits for the next frame, and that frame went on with it.
        self.seed = False
        self.seed_dropped = False
        self.boundary = Boundary()
        #: Arguments that came before its name.
        self.early_text = ""
        #: Its entry in the chunk under repair.
        self.touched: Path | None = None
        self.touched_by = -1


class Calls:
    """The calls of one choice."""

    def __init__(self, choice: int, stream_id: str, tools: frozenset[str], ids: set[str]) -> None:
        self.known: list[KnownCall] = []
        self._choice = choice
        self._stream_id = stream_id
        self._tools = tools
        self._ids = ids
        self._by_index: dict[int, KnownCall] = {}
        self._by_id: dict[str, KnownCall] = {}

    @property
    def announced(self) -> bool:
        """Whether the client knows of any call."""
        return any(call.announced for call in self.known)

    def repair(self, work: Work, path: Path, entries: list[Any]) -> None:
        """Make every entry of one `tool_calls` list canonical."""
        for place, entry in enumerate(entries):
            if is_object(entry):
                self._entry(work, (*path, place), entry, Entry.of(entry))
            else:
                work.op("call_not_object", (*path, place), Action.OMIT)

    def close(self, work: Work) -> None:
        """The protocol closed the calls: one without a byte of arguments takes none, which is `{}` (Q25)."""
        for call in self.known:
            if call.has_arguments or not call.announced:
                continue
            call.has_arguments = True
            if call.touched is not None and call.touched_by == work.n:
                work.ops = [op for op in work.ops if op.path != (*call.touched, "function") or op.key != "arguments"]
                work.op("arguments_empty", (*call.touched, "function"), Action.SET, "arguments", dumps(_SEED))
            else:
                entry = {"index": call.number, "function": {"arguments": _SEED}}
                work.before.append(("arguments_empty", chunk(work.envelope, self._choice, {"tool_calls": [entry]})))

    def _entry(self, work: Work, path: Path, given: dict[str, Any], entry: Entry) -> None:
        call = self._continued(entry)
        if call is None:
            call = self._start(entry)
        elif call.announced and not entry.id and not entry.name and self._second_value(call, entry):
            name = call.name
            call = self._start(entry)
            call.name = name
            work.op("call_split", (*path, "function"), Action.SET, "name", dumps(name))
        if call.announced:
            self._continue(work, path, given, entry, call)
        else:
            self._announce(work, path, given, entry, call)

    def _continued(self, entry: Entry) -> KnownCall | None:
        if entry.place is not None:
            call = self._by_index.get(entry.place)
            if call is None:
                return None
            starts = entry.id and entry.name and entry.id != call.id and self._by_id.get(entry.id) is not call
            closed = call.announced and (call.boundary.complete or not call.has_arguments)
            return None if starts and closed else call
        if entry.id:
            return self._by_id.get(entry.id)
        return None if entry.name or not self.known else self.known[-1]

    def _start(self, entry: Entry) -> KnownCall:
        call = KnownCall(len(self.known))
        self.known.append(call)
        if entry.place is not None:
            self._by_index[entry.place] = call
        if entry.id:
            self._by_id.setdefault(entry.id, call)
        return call

    def _second_value(self, call: KnownCall, entry: Entry) -> bool:
        return call.boundary.complete and not call.seed and entry.text.lstrip()[:1] in ("{", "[")

    def _announce(self, work: Work, path: Path, given: dict[str, Any], entry: Entry, call: KnownCall) -> None:
        call.id = call.id or self._unique_id(entry, call)
        call.name = call.name or entry.name
        if not call.name:  # Q17: the start waits until id and name are both known
            if not call.early_text and not call.touched:
                work.events.append(
                    ToolCallStarted(n=work.n, choice=self._choice, call=call.number, id=call.id, name="")
                )
            call.early_text += entry.text
            call.touched, call.touched_by = path, work.n
            work.op("call_without_name", path, Action.OMIT)
            return
        call.announced = True
        call.touched, call.touched_by = path, work.n
        self._set(work, "call_index", path, given, "index", call.number)
        self._set(work, "call_id", path, given, "id", call.id)
        if not isinstance(given.get("type"), str) or not given["type"]:
            work.op("call_type", path, Action.SET, "type", b'"function"')
        text = call.early_text + entry.text
        if not is_object(given.get("function")):
            function = dumps({"name": call.name, "arguments": text})
            work.op("call_function", path, Action.SET, "function", function)
        else:
            self._arguments_of_start(work, (*path, "function"), entry, call)
        self._feed(work, path, call, text)
        if text.strip() == _SEED and not call.early_text:
            call.seed = True
            work.seeds.append(((*path, "function"), call))

    def _arguments_of_start(self, work: Work, path: Path, entry: Entry, call: KnownCall) -> None:
        if not entry.name and not any(op.path == path and op.key == "name" for op in work.ops):
            work.op("call_name", path, Action.SET, "name", dumps(call.name))
        if call.early_text:
            text = dumps(call.early_text + entry.text)
            work.op("call_without_name", path, Action.SET, "arguments", text)
        elif entry.arguments is None:
            work.op("arguments_null", path, Action.SET, "arguments", b'""')
        elif not isinstance(entry.arguments, str):
            work.op("arguments_not_text", path, Action.QUOTE, "arguments")

    def _continue(self, work: Work, path: Path, given: dict[str, Any], entry: Entry, call: KnownCall) -> None:
        call.touched, call.touched_by = path, work.n
        self._set(work, "call_index", path, given, "index", call.number)
        if "id" in given:  # null, "", the same again (Q5) or another (Q6): the SDK would append it
            work.op("call_id_repeated", path, Action.DROP, "id")
        if "type" in given and given["type"] is None:
            work.op("null_member", path, Action.DROP, "type")
        if not is_object(given.get("function")):
            if "function" in given:
                work.op("null_member", path, Action.DROP, "function")
            return
        function = (*path, "function")
        if "name" in entry.function:
            self._further_name(work, function, entry, call)
        if entry.arguments is None:
            if "arguments" in entry.function:
                work.op("arguments_null", function, Action.DROP, "arguments")
        elif not isinstance(entry.arguments, str):
            work.op("arguments_not_text", function, Action.QUOTE, "arguments")
        if entry.text and call.seed:
            call.seed, call.seed_dropped = False, True
            call.boundary = Boundary()
        self._feed(work, path, call, entry.text)

    def _further_name(self, work: Work, path: Path, entry: Entry, call: KnownCall) -> None:
        """A name again (Q15), or its next piece (Q16): a piece only while no argument byte has come."""
        name = entry.name
        repeats = not name or name == call.name or call.has_arguments
        if not repeats and name in self._tools and name.startswith(call.name):
            work.op("name_repeated", path, Action.SET, "name", dumps(name[len(call.name) :]))
            call.name = name
        elif repeats or name in self._tools:
            work.op("name_repeated", path, Action.DROP, "name")
        else:
            call.name += name

    def _feed(self, work: Work, path: Path, call: KnownCall, text: str) -> None:
        """Follow the arguments; a second whole value in the same piece goes into a frame of its own (Q8)."""
        if text:
            call.has_arguments = True
        split = call.boundary.feed(text)
        if split is None:
            return
        work.op("call_split", (*path, "function"), Action.SET, "arguments", dumps(text[:split]))
        following = self._start(Entry(None, "", call.name, None, {}))
        following.id, following.name, following.announced = self._unique_id(None, following), call.name, True
        function = {"name": following.name, "arguments": text[split:]}
        entry = {"index": following.number, "id": following.id, "type": "function", "function": function}
        work.after.append(("call_split", chunk(work.envelope, self._choice, {"tool_calls": [entry]})))
        following.has_arguments = True
        following.boundary.feed(text[split:])

    def _unique_id(self, entry: Entry | None, call: KnownCall) -> str:
        """The upstream's id; a missing one (Q1) or one that another call has is made from stream and number."""
        given = entry.id if entry else ""
        if not given or given in self._ids:
            given = f"call_{self._stream_id}_{self._choice}_{call.number}"
        self._ids.add(given)
        return given

    @staticmethod
    def _set(work: Work, repair: str, path: Path, given: dict[str, Any], key: str, wanted: int | str) -> None:
        if given.get(key) != wanted or type(given.get(key)) is not type(wanted):
            work.op(repair, path, Action.SET, key, dumps(wanted))
