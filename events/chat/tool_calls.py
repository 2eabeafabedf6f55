"""Tool calls of one choice: which call a delta belongs to, and what each delta must contain (dialect catalogue 1.1).

A call is known by neither index nor id alone. The key is the index, unless a new call starts there: `_starts` has the
rules. Without an index, the id, the arrival of a name, the place in the list or else the last call decides (Q9, Q10).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from ..core.json_text import Path, is_list, is_object
from ..core.lifecycle import CUT_FINISHES
from ..core.limits import CALLS_IN_A_PIECE_MAX, KEPT_CHARS_MAX, NAME_CHARS_MAX
from ..core.model import Event, ForeignFrame, ToolArgumentsDelta, ToolCallDamaged, ToolCallStarted
from ..emission.dialect import Context
from .chunk import CALL_KEYS, LEGACY_CALL, Draft, Entry, KnownCall, call_delta

__all__ = ["Calls"]

#: Arguments of one whole object without members, or a seed that real fragments will follow (Q20, Q25).
_SEED: Final = "{}"
#: Other members that wait with a call for its name; no dialect has more than one (`extra_content`, Q30).
_EXTRAS_MAX: Final = 16
#: Pieces shorter than this repeat by chance: indentation, digits, escaped line ends (Q22).
_REPEATED_CHARS_MIN: Final = 8


class Calls:
    """The calls of one choice."""

    def __init__(self, choice: int, context: Context, ids: set[str]) -> None:
        self.known: list[KnownCall] = []
        #: Those that no finish has closed.
        self.open: list[KnownCall] = []
        #: The `function_call` of this choice, which has a name once it has come (Q29).
        self.legacy = KnownCall(LEGACY_CALL)
        self._choice = choice
        self._context = context
        self._ids = ids
        self._by_index: dict[int, KnownCall] = {}
        self._by_id: dict[str, KnownCall] = {}
        #: Something came where a call was due, and could not be read.
        self._lost = False
        #: A `{}` of this stream was a seed, so that each one is (Q20).
        self._seeding = False

    @property
    def all(self) -> list[KnownCall]:
        return [*self.known, self.legacy] if self.legacy.name else self.known

    @property
    def announced(self) -> bool:
        """Whether the client knows of any call."""
        return any(call.announced for call in self.known)

    # -- one chunk ----------------------------------------------------------------------------------------------------

    def repair(self, draft: Draft, path: Path, delta: dict[str, Any]) -> None:
        """Make the calls in the delta at `path` canonical."""
        entries, function = delta.get("tool_calls"), delta.get("function_call")
        if is_list(entries):
            self._entries(draft, (*path, "tool_calls"), entries)
        elif entries is not None:
            draft.drop("calls_not_list", path, "tool_calls")
            self._lost = True
        legacy = self.legacy  # it passes under its old name; its arguments must be text all the same (Q29)
        if function is None:
            return
        if not is_object(function):
            draft.drop("calls_not_list", path, "function_call")
        elif self._is_twin(delta):
            draft.drop("legacy_call_twin", path, "function_call")
        elif not (legacy.name or function.get("name") or function.get("arguments")):
            draft.drop("legacy_call_empty", path, "function_call")  # held, it would go out as a call
        else:
            if "name" in function and legacy.name:
                draft.drop("name_repeated", (*path, "function_call"), "name")  # Q15
            entry = Entry(path, {"function": function})
            entry.member = "function_call"
            if entry.name and not legacy.name:
                self.open.append(legacy)
            legacy.name = legacy.name or entry.name
            legacy.take(entry.text)
            draft.touch(legacy, entry)

    def late(self, draft: Draft, path: Path, delta: dict[str, Any]) -> None:
        """Take calls that begin after the finish, since parallel calls may each bring their own (Together, Gemini)."""
        for key in CALL_KEYS:
            legacy, given = key == "function_call", delta.get(key)
            if legacy and self._is_twin(delta):
                draft.drop("legacy_call_twin", path, key)
            elif is_list(given) and given and not legacy:
                self._entries(draft, (*path, key), given, late=True)
            elif given is not None:
                draft.drop("late_call", path, key)
                if legacy or given:
                    draft.events.append(ForeignFrame(n=draft.n, why="late_call"))
        if self.legacy.supplied and Entry((), {"function": delta.get("function_call")}).text:
            draft.events += self.damage([self.legacy], draft.n)

    def _is_of_closed(self, draft: Draft, entry: Entry, place: int) -> bool:
        """Return whether an entry after the finish is about a call before it, or repeats one; it is withheld.

        A call that was handed over as if it had no arguments is damaged by any that come now.
        """
        call = self._continued(draft, entry, place)
        if call in self.open:
            return False
        if entry.name and (call is None or self._starts(draft, call, entry)):
            twin = self._context.live.choice(self._choice).calls.get(call.number if call else place)
            repeats = twin and twin.name == entry.name and twin.text.tell() == len(entry.text)
            if not (repeats and twin and twin.arguments == entry.text) or (entry.id and entry.id not in self._by_id):
                return False
        draft.events.append(ForeignFrame(n=draft.n, why="late_call"))
        same = call and entry.name in ("", call.name) and (not entry.id or self._is_id_of(call, entry))
        if call and same and call.supplied and entry.text and entry.may_be_of(call):
            draft.events += self.damage([call], draft.n)
        return True

    def _is_twin(self, delta: dict[str, Any]) -> bool:
        """Return whether a legacy call repeats one of the list: llama-cpp-python writes each call under both names."""
        known = self.announced or bool(delta.get("tool_calls"))
        return known and not self.legacy.name and is_object(delta.get("function_call"))

    def close(self, draft: Draft, word: str, *, lost: bool) -> None:
        """Close the calls: a call without a byte of arguments takes none, which is `{}` (Q25), unless it was cut.

        `lost` means that an unreadable frame may have been about a call that nothing else mentions.
        """
        closing, self.open = self.open, []
        for call in closing:
            if word in CUT_FINISHES:
                continue
            if call is not self.legacy and (call.custom or not call.announced):  # a custom tool's input may be empty
                continue
            same = call.followed_by  # which has arguments, perhaps those of this one
            theirs = same and same.has_arguments and not (same.supplied or same.head.strip() == _SEED)
            if call.has_arguments:
                if call.head[:1] != "{":
                    draft.flags.append("arguments_not_object")  # Q21: serialised twice, perhaps
            elif call.damaged or theirs or (call is self.legacy and self.announced):  # perhaps under its newer name
                draft.events += self.damage([call], draft.n)
            else:
                call.supplied = True
                call.take(_SEED)
                if (entry := draft.touched.get(call)) is not None:
                    draft.say(entry, "arguments_empty", "arguments", _SEED)
                else:
                    frames = draft.after or draft.before  # after the start, if that is a chunk of ours
                    frames.append(draft.ours("arguments_empty", self._choice, call.delta(_SEED)))
        if (lost or (self._lost and word != "stop")) and word not in CUT_FINISHES and not self.all:
            draft.events.append(ToolCallDamaged(n=draft.n, choice=self._choice, call=0))

    def damage(self, calls: Iterable[KnownCall], n: int) -> list[Event]:
        """Return an event for each call that was not damaged before: some part could not be read."""
        damaged = [call for call in calls if not call.damaged]
        for call in damaged:
            call.damaged = True
        return [ToolCallDamaged(n=n, choice=self._choice, call=call.number) for call in damaged]

    def missed(self, draft: Draft, entries: list[Any]) -> None:
        """Take calls and arguments from a whole message if the stream had none."""
        begun = bool(self.known)
        for place, given in enumerate(entries):
            if not is_object(given):
                continue
            entry = Entry((), given)
            at_place = self.known[place] if place < len(self.known) else None
            call = self._by_id.get(entry.id) or (at_place if at_place and entry.name in ("", at_place.name) else None)
            if call is None and entry.name and place == len(self.known) and (entry.id or not begun):
                call = self._start(place)
                self._learn(entry, call)
                call.extras = entry.extras
            elif call is None or not call.announced or call.has_arguments or not entry.text:
                continue
            self._send_apart(draft, "message_beside", entry.text, call)

    def _entries(self, draft: Draft, path: Path, entries: list[Any], *, late: bool = False) -> None:
        """Make every entry of `tool_calls` canonical; remove the list if no entry is left."""
        hidden: list[tuple[str, int]] = []
        sent_before = len(draft.after)
        for place, given in enumerate(entries):
            if not is_object(given):
                hidden.append(("call_not_object", place))
                self._lost = True
                continue
            entry, position = Entry((*path, place), given), place if len(entries) > 1 else -1
            if late and self._is_of_closed(draft, entry, place):
                hidden.append(("late_call", place))
            elif len(draft.after) > sent_before:  # after the call that was split off before it: numbers rise
                self._entry(draft, entry, position, apart=True)
                hidden.append(("call_split", place))
            elif not self._entry(draft, entry, position):
                hidden.append(("call_without_name", place))
        if hidden and len(hidden) == len(entries):
            draft.drop(hidden[0][0], path[:-1], "tool_calls")
            return
        for repair, place in hidden:
            draft.drop(repair, path, place)

    # -- which call ---------------------------------------------------------------------------------------------------

    def _entry(self, draft: Draft, entry: Entry, place: int, *, apart: bool = False) -> bool:
        """Repair an entry and return whether it is sent; with `apart`, send it in a frame of its own."""
        call = self._continued(draft, entry, place)
        if call is None:
            if not (entry.id or entry.name or entry.text):
                return False
            call = self._start(entry.index)
        elif self._starts(draft, call, entry):
            before, call = call, self._start(entry.index)
            call.name = entry.name or (before.name if entry.may_be_of(before) else "")  # Q8: the same tool again
            if before.name == call.name and not before.has_arguments:  # Q6 with Q15, or Q7: undecidable
                before.followed_by = call
        if entry.function is None and call.custom is not None:  # it is empty, whichever call it is for
            entry.settle(custom=call.custom)
        self._learn(entry, call)
        if apart and call.name:
            if not call.announced:
                call.extras |= entry.extras
            self._send_apart(draft, "call_split", entry.text, call)
        elif call.announced:
            self._continue(draft, entry, call)
        else:
            self._announce(draft, entry, call)
        return call.announced

    def _continued(self, draft: Draft, entry: Entry, place: int) -> KnownCall | None:
        """Return the call that the entry is about, if index, id or place show it."""
        same = self._by_id.get(entry.id)
        if entry.index is not None:
            call = self._by_index.get(entry.index)
            # Parallel calls in turns at one index (Q7). An id seen at another index proves nothing: indices differ.
            return same if call and same and same.place == entry.index else call
        last = self.known[-1] if self.known else None
        if same is not None:
            return same if entry.name in ("", same.name) else None
        if last is None or (last.announced and entry.id and entry.name):
            return None
        if not last.announced:  # Q17: what it waits for
            return last if not entry.id or not last.id else None
        if entry.id:
            return last if last.unfinished and entry.text else None  # Q6 without an index
        if entry.name:  # Q15 without an index: a name again in the middle of the arguments
            listed = last.custom and last in draft.touched  # an entry of the same list
            goes_on = not listed and (last.unfinished or (not last.has_arguments and entry.text))
            return last if goes_on and entry.name == last.name else None
        return self.known[place] if 0 <= place < len(self.known) else last

    def _starts(self, draft: Draft, call: KnownCall, entry: Entry) -> bool:
        """Return whether the entry starts a call of its own although it points at this one.

        A new id does so with a name, unless both look like the same call going on (Q6 against Q7). Another name does so
        after whole arguments. And a second whole value, with no evidence to the contrary (Q8).
        """
        if not entry.may_be_of(call):
            return True
        if not call.announced:
            return False
        another = entry.name not in ("", call.name)
        if call.custom:  # its input shows nothing; names do: next to an entry of the same list, or after some input
            new = bool(entry.id) or call in draft.touched or (another and call.has_arguments)
            return bool(entry.name) and not self._is_id_of(call, entry) and new
        if call.bare and not entry.id and not entry.name:
            return False  # Q20 or Q8, and the `{}` is out: neither may run on a guess, so it ends as malformed
        second = call.boundary.complete and not call.seed and entry.text.lstrip()[:1] in ("{", "[")
        if self._is_id_of(call, entry):
            return second and another
        if entry.id and entry.name:
            return another or not call.unfinished
        return second or (another and call.boundary.complete)

    def _is_id_of(self, call: KnownCall, entry: Entry) -> bool:
        """Return whether the entry names this call; what the client sees as its id may be another."""
        return bool(entry.id) and self._by_id.get(entry.id) is call

    def _start(self, place: int | None, name: str = "", *, custom: bool | None = None) -> KnownCall:
        call = KnownCall(len(self.known), place, name=name, custom=custom)
        self.known.append(call)
        self.open.append(call)
        if place is not None:
            self._by_index[place] = call
        return call

    def _learn(self, entry: Entry, call: KnownCall) -> None:
        """Take from an entry what is not known of its call yet."""
        if entry.function is not None and call.custom is None:
            call.custom = entry.custom
        call.name = call.name or entry.name
        if entry.id and not call.id:
            call.id = self._unique_id(entry.id, call)
            self._by_id.setdefault(entry.id, call)

    # -- what its delta has ------------------------------------------------------------------------------------------

    def _announce(self, draft: Draft, entry: Entry, call: KnownCall) -> None:
        """Send the start when id and name are known, after the starts of the calls before it: numbers rise."""
        if not call.name or (call.number and not self.known[call.number - 1].announced):
            self._wait(draft, entry, call)
            return
        call.id = call.id or self._unique_id("", call)  # Q1
        call.announced = True
        self._identify(draft, entry, call)
        if entry.given.get("id") != call.id:
            draft.set("call_id", entry.path, "id", call.id)
        call_type = entry.given.get("type")
        if not isinstance(call_type, str) or not call_type or (entry.custom and call_type == "function"):
            draft.set("call_type", entry.path, "type", entry.member)  # Q23
        for key, value in call.extras.items():
            if key not in entry.given:
                draft.set("call_without_name", entry.path, key, value)
        self._first_arguments(draft, entry, call)
        for waiting in self.known[call.number + 1 :]:  # for this one
            if not waiting.name or waiting.announced:
                break
            self._send_apart(draft, "call_without_name", "".join(waiting.early), waiting)

    def _wait(self, draft: Draft, entry: Entry, call: KnownCall) -> None:
        """Hold the start until id and name are both known (Q17); the live state must know of the call all the same."""
        n, choice = draft.n, self._choice
        if not call.early:
            custom = bool(call.custom)
            started = ToolCallStarted(n=n, choice=choice, call=call.number, id=call.id, name="", custom=custom)
            draft.events.append(started)
        for key, value in entry.extras.items():
            if len(call.extras) < _EXTRAS_MAX:
                call.extras[key] = value
        call.early.append(entry.text)
        call.early_chars += len(entry.text)
        if call.early_chars > KEPT_CHARS_MAX:  # the live state gives up on such a stream
            text = "".join(call.early)
            draft.events.append(ToolArgumentsDelta(n=n, choice=choice, call=call.number, text=text))

    def _first_arguments(self, draft: Draft, entry: Entry, call: KnownCall) -> None:
        if entry.name != call.name:
            draft.say(entry, "call_name", "name", call.name)
        text = "".join([*call.early, entry.text])
        if call.early_chars:
            draft.say(entry, "call_without_name", entry.arguments, text)
        elif not entry.text:
            draft.say(entry, "arguments_null", entry.arguments, "")  # Q19
        call.early.clear()
        if call.custom or text.strip() != _SEED:
            self._feed(draft, entry, call, text, may_split=True)
        elif self._seeding:
            draft.say(entry, "arguments_seed", "arguments", "")
        else:
            call.take(text)
            call.seed = call.bare = True
            draft.seeds.append(partial(self._settle_seed, draft, entry, call))

    def _settle_seed(self, draft: Draft, entry: Entry, call: KnownCall) -> None:
        """Decide about a `{}` that nothing follows: it is a seed if any `{}` of this choice was one (Q20)."""
        if call.seed and self._seeding:
            call.forget_seed()
        if not call.bare:
            draft.say(entry, "arguments_seed", "arguments", "")
        call.seed = False

    def _continue(self, draft: Draft, entry: Entry, call: KnownCall) -> None:
        given, member = entry.given, (*entry.path, entry.member)
        self._identify(draft, entry, call)
        if "id" in given:  # null, "", the same again (Q5) or another (Q6): the SDK would append it
            draft.drop("call_id_repeated", entry.path, "id")
        if "type" in given and (not isinstance(given["type"], str) or not given["type"]):
            draft.drop("null_member", entry.path, "type")
        elif given.get("type") == entry.other and (entry.custom or entry.function is None):
            draft.drop("call_type", entry.path, "type")
        if entry.function is None:  # only metadata (Q10); the SDKs want the member all the same
            draft.set("call_function", entry.path, entry.member, {})
            return
        if "name" in entry.function:
            self._further_name(draft, member, entry, call)
        if entry.function.get(entry.arguments, "") is None:
            draft.drop("arguments_null", member, entry.arguments)
        if entry.text and call.seed:
            call.forget_seed()
            self._seeding = True
        if entry.text == call.last_piece and len(entry.text) >= _REPEATED_CHARS_MIN:
            draft.flags.append("arguments_repeated")  # Q22
        self._feed(draft, entry, call, entry.text, may_split=not self._is_id_of(call, entry))

    @staticmethod
    def _identify(draft: Draft, entry: Entry, call: KnownCall) -> None:
        """Give an entry the number of its call and text arguments; remove the member of the other kind of tool."""
        if entry.index != call.number:
            draft.set("call_index", entry.path, "index", call.number)
        if entry.other in entry.given:
            draft.drop("call_member", entry.path, entry.other)
        draft.touch(call, entry)

    def _further_name(self, draft: Draft, path: Path, entry: Entry, call: KnownCall) -> None:
        """Drop a name that comes again (Q15), or pass its next piece (Q16), as long as no argument byte has come."""
        name = entry.name
        tools = self._context.facts.tools
        whole = name in tools and not (call.name not in tools and call.name + name in tools)
        over = name == call.name or call.has_arguments or len(call.name) + len(name) > NAME_CHARS_MAX
        if not over and whole and name.startswith(call.name):  # pieces, each with all before it
            draft.set("name_repeated", path, "name", name[len(call.name) :])
            call.name = name
        elif over or whole or not name:
            draft.drop("name_repeated", path, "name")
        else:
            call.name += name

    def _feed(self, draft: Draft, entry: Entry, call: KnownCall, text: str, *, may_split: bool) -> None:
        """Follow the arguments; each further whole value in one piece goes into a frame of its own (Q8)."""
        call.last_piece = text
        at = call.take(text)
        if at is not None and may_split and not call.bare and self.known[-1].announced:
            draft.say(entry, "call_split", "arguments", text[:at])
            following = self._start(call.place, call.name, custom=call.custom)
            self._send_apart(draft, "call_split", text[at:], following)

    def _send_apart(self, draft: Draft, repair: str, text: str, call: KnownCall) -> None:
        """Send more arguments or the start of a call in a frame of its own, and the start of each further one in it."""
        if call.announced:
            call.take(text)
            draft.after.append(draft.ours(repair, self._choice, call.delta(text)))
            return
        while True:
            call.id = call.id or self._unique_id("", call)
            call.announced = True
            at = call.take(text)
            several = len(draft.after) + 2 < CALLS_IN_A_PIECE_MAX and self.known[-1].announced
            if at is None or not several:
                at = len(text)
            start = call_delta(
                call.number, call.id, call.extras, custom=bool(call.custom), name=call.name, arguments=text[:at]
            )
            draft.after.append(draft.ours(repair, self._choice, start))
            call.early.clear()
            text = text[at:]
            if not text:
                return
            call, repair = self._start(call.place, call.name, custom=call.custom), "call_split"

    def _unique_id(self, given: str, call: KnownCall) -> str:
        """Return the upstream's id; a missing one (Q1) or one that another call has is made from stream and number."""
        made = f"call_{self._context.stream_id}_{self._choice}_{call.number}"
        call_id = made if not given or given in self._ids else given
        while call_id in self._ids:  # the upstream made the same one up
            call_id += "_"
        self._ids.add(call_id)
        return call_id
