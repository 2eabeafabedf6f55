"""The output of one answer: frames of items to canonical ones, in which items follow one another.

A frame of another item waits for the end of the one that is open; a message or a thought ends as soon as another item
says something, and its later pieces become another item. Frames that an upstream leaves out are supplied.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import model
from ..core.json_text import ABSENT, Path, as_list, as_object, as_text, dumps, is_object, parse
from ..core.limits import HELD_BYTES_MAX, KEPT_CHARS_MAX
from ..core.model import Event
from ..emission.dialect import Context
from ..emission.frames import Edit, Out
from ..emission.reading import TypedReader
from . import frames
from .frames import ADDED, CLIENT_CALLS, DONE, TEXTS, Item, Kind, Level, Part, frame_value, named

__all__ = ["Output"]


class Output(TypedReader):
    """The part of a reader that reads the items of an answer."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stream = context.stream_id
        #: The writer need not see each frame of a text.
        self._plain = context.settings.on_partial == "error"
        #: In the order of sending, and what was sent of those that have ended.
        self._order: list[Item] = []
        self._done: list[Mapping[str, Any]] = []
        #: The item that is open, and how many calls of the client there are.
        self._open: Item | None = None
        self._calls = 0
        self._chars_left = KEPT_CHARS_MAX
        #: By the upstream's index, and by every id that they had. An index below zero is ours.
        self._items: dict[int, Item] = {}
        self._fresh_place = 0
        self._by_id: dict[str, Item] = {}
        self._call_ids: set[str] = set()
        #: Frames that wait for the end of the open item; how many of them hold more than the start of an item.
        self._queue: dict[int, list[Out]] = {}
        self._speaking = 0
        self._bytes_left = HELD_BYTES_MAX
        #: The names of the calls that the upstream runs itself.
        self._ran: dict[str, str] = {}
        #: The end of a call whose arguments are not JSON: the frame after it says whether a limit cut them.
        self._doubt: tuple[Item, Out, int] | None = None
        #: The last frame says that a limit has cut the answer.
        self._cutting = False

    @property
    def room(self) -> int:
        return self._chars_left

    def repeated(self, text: str) -> None:
        assert self._open is not None, "a text repeats in an open item"
        assert self._open.part is not None, "a text repeats in an open part"
        self._open.part.pieces.append(text)
        self._chars_left -= len(text)
        self._note_overflow()

    def _note_overflow(self) -> None:
        self._context.live.overflow |= self._chars_left < 0 or self._bytes_left < 0

    def _damage(self, unread: bytes = b"") -> None:  # noqa: ARG002 - an open call may have been anywhere in them
        """Damage the call that is open."""
        if self._open is not None and self._open.number is not None:
            self._step([model.ToolCallDamaged(n=self._n, choice=0, call=self._open.number)])

    def _text_events(self, item: Item, part: Part, text: str) -> Sequence[Event]:
        """Return the events of a piece of text that was added to its part."""
        kind = part.kind
        if kind.event is not None:
            if kind.list == "summary" and part.index and len(part.pieces) == 1:
                text = "\n\n" + text  # another part of a thought is another paragraph
            return (kind.event(n=self._n, choice=0, text=text),)
        if item.number is None:
            return ()
        return (model.ToolArgumentsDelta(n=self._n, choice=0, call=item.number, text=text),)

    def _supply(self, item: Item, values: Sequence[dict[str, Any]], repair: str) -> None:
        """Send frames of ours that go on with an item, but not end it."""
        for value in values:
            item.take(value)
            text, part = value.get("delta"), item.part
            events = self._text_events(item, part, text) if text and part else ()
            self._step(events, named(self._n, value, repair), delivers=bool(text))

    def _close(self, item: Item, repair: str, status: str = "completed") -> None:
        """End a message or a thought whose end has not come, or will say something else."""
        *values, last = item.closing(status)
        self._supply(item, values, repair)
        self._end(named(self._n, last, repair), item)
        item.split = True

    # -- the order of items -------------------------------------------------------------------------------------------

    def _take(self, out: Out) -> None:
        """Read a frame of the item that is open or begins, or keep it until that has ended."""
        if out.value["type"] in (ADDED, DONE) and not isinstance(as_object(out.value.get("item")).get("type"), str):
            self._withhold(out, "item_null")  # Q120
            return
        place = self._place(out.value)
        if self._open is not None and place != self._open.place:
            self._wait(place, out)
        else:
            self._read(out, place)
        self._advance()

    def _wait(self, place: int, out: Out) -> None:
        self._queue.setdefault(place, []).append(out)
        self._bytes_left -= out.size
        self._speaking += out.value["type"] != ADDED

    def _advance(self) -> None:
        """Read what waited, item by item."""
        while self._queue:
            if self._open is not None:
                if not self._speaking or self._open.type not in TEXTS:
                    return
                self._close(self._open, "item_split")
            place = next(iter(self._queue))
            outs = self._queue.pop(place)
            self._speaking -= sum(out.value["type"] != ADDED for out in outs)
            for out in outs:
                self._read(out, place)

    def _place(self, value: Mapping[str, Any]) -> int:
        """Return the upstream's index of a frame's item; where it is missing or wrong, that of the item's id."""
        index: Any = value.get("output_index")
        known = self._by_id.get(as_text(value.get("item_id") or as_object(value.get("item")).get("id")))
        if known is not None and (known is self._open or type(index) is not int):
            return known.place
        if type(index) is int:
            return index
        return self._fresh_place if value["type"] == ADDED or self._open is None else self._open.place

    def _read(self, out: Out, place: int) -> None:
        kind = out.value["type"]
        items = self._item_added if kind == ADDED else self._item_done if kind == DONE else None
        (items or (self._spoken if kind in frames.SPOKEN else self._aside))(out, place)

    # -- the start of an item -----------------------------------------------------------------------------------------

    def _item_added(self, out: Out, place: int) -> None:
        given, before = out.value["item"], self._items.get(place)
        same = before is not None and not before.ended and before.type == given["type"]
        if before is not None and same and given.get("id") in (None, "", before.id):
            self._withhold(out, "item_repeated")
        elif given["type"] == "function_call" and not as_text(given.get("name")):  # its end has the name
            self._withhold(out, "call_without_name")
        elif self._makes_way(out, before):
            self._begin(out, place, given)

    def _makes_way(self, out: Out, item: Item | None) -> bool:
        """Close the item at the place of another one; a frame waits until a call has ended."""
        if item is not None and not item.ended:
            if item.type not in TEXTS:
                self._wait(~item.place, out)
                return False
            self._close(item, "item_split")
        return True

    def _item_for(self, out: Out, place: int, wanted: str) -> Item | None:
        """Return the open item that a frame is about; begin one if it has none (Q116, Q119)."""
        item = self._items.get(place)
        if item is not None and not item.ended and item.type == wanted:
            return item
        if wanted not in TEXTS:  # it has ended, or it never began: then its end says everything
            self._withhold(out, "item_unknown")
            return None
        if not self._makes_way(out, item):
            return None
        value: dict[str, Any] = {"type": wanted, "id": out.value.get("item_id")}
        if wanted == "message":
            value |= {"status": "in_progress", "role": "assistant"}
        begins = self._supply_item(place, value)
        begins.split = item is not None
        return begins

    def _supply_item(self, place: int, given: Mapping[str, Any]) -> Item:
        """Begin an item whose start did not come."""
        value = frame_value(ADDED, output_index=place, item=frames.begun(given))
        return self._begin(named(self._n, value, "item_supplied"), place, value["item"])

    def _begin(self, out: Out, place: int, given: dict[str, Any]) -> Item:
        """Begin an item with its first frame."""
        self._settle(cut=self._cutting)
        kind: str = given["type"]
        fresh = [(member, value) for member, value in frames.begun(given).items() if member != "status"]
        edits = [Edit("item_begun", ("item",), member, value) for member, value in fresh if given.get(member) != value]
        out.edit([*self._ids(given), *edits])
        item = self._items[place] = self._open = Item(place, out.value["item"])
        self._fresh_place = max(self._fresh_place, place + 1)
        self._order.append(item)
        self._chars_left -= out.size
        self._note(item, given)
        self._note(item, item.value)
        events: list[Event] = []
        if frames.is_client_call(given) and not (self._context.settings.hermes and kind == "function_call"):
            item.number, self._calls = self._calls, self._calls + 1
            name, call_id = as_text(given.get("name")) or CLIENT_CALLS[kind][1], item.value["call_id"]
            custom = kind == "custom_tool_call"
            events = [model.ToolCallStarted(n=out.n, choice=0, call=item.number, id=call_id, name=name, custom=custom)]
        elif kind.endswith("_call"):
            events = [self._progress(out.n, item.value, "running")]
        self._step(events, out, delivers=kind not in TEXTS)
        return item

    def _ids(self, given: Mapping[str, Any]) -> list[Edit]:
        """Return the edits that give a new item an id of its own, and a call one too (Q1)."""
        kind, item_id, call_id = given["type"], given.get("id"), given.get("call_id")
        edits: list[Edit] = []
        if not isinstance(item_id, str) or not item_id or item_id in self._by_id:
            made = f"{frames.PREFIXES.get(kind, 'item')}_{self._stream}_{len(self._order)}"
            edits.append(Edit("item_id", ("item",), "id", made))
        if kind in CLIENT_CALLS:
            if not isinstance(call_id, str) or not call_id or call_id in self._call_ids:
                call_id = f"call_{self._stream}_{len(self._order)}"
                edits.append(Edit("call_id", ("item",), "call_id", call_id))
            self._call_ids.add(call_id)
        return edits

    def _note(self, item: Item, given: Mapping[str, Any]) -> None:
        """Note the ids that an item has here."""
        for key in _keys(given):
            self._by_id.setdefault(key, item)

    def _progress(self, n: int, item: Mapping[str, Any], status: str) -> Event:
        call_id = str(item.get("call_id") or item.get("id") or "")
        name = self._ran.setdefault(call_id, str(item.get("name") or item["type"].removesuffix("_call")))
        return model.ToolProgress(n=n, id=call_id, name=name, status=status)

    # -- texts --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _name(out: Out, item: Item, part: Part | None) -> None:
        """Name the item and the part of a frame as the client knows them (Q111, Q119)."""
        due: dict[str, Any] = {"item_id": item.id}
        if part is not None and part.kind.list:
            due[part.kind.index_key] = part.index
        if out.value["type"] == "response.output_text.annotation.added" and part is not None:
            due["annotation_index"] = len(part.annotations)
        out.edit(frames.corrected(out.value, (), due))

    def _spoken(self, out: Out, place: int) -> None:
        """Read a frame of a text: the start of its part, a piece, the whole text, or the end of its part."""
        level, kind = frames.SPOKEN[out.value["type"]]
        item, given, text = self._items.get(place), out.value, out.value.get("delta")
        if level in (Level.OPENED, Level.CLOSED):
            given = as_object(given.get("part"))
            kind = frames.kind_of(given, kind.list)
            if not isinstance(given.get("type"), str):  # what it says is supplied
                self._withhold(out, "item_null")
                return
        index = out.value.get(kind.index_key)
        if level >= Level.SAID and (item is not None or level is Level.CLOSED):
            known = [one for one in item.lists[kind.list] if one.level >= level and one.theirs == index] if item else []
            said = item is None or item.ended or any(level is Level.CLOSED or one.kind is kind for one in known)
            if said or (item is not None and item.split):
                self._withhold(out, "item_split" if item is not None and item.split else "done_repeated")
                return
        item = self._item_for(out, place, kind.item) if item is None or level is not Level.CLOSED else item
        if item is None:
            return
        if level is Level.PIECE and not isinstance(text, str):
            self._withhold(out, "delta_not_text")
            self._damage()
            return
        part = self._part_for(out, item, kind, index, level)
        if part is None:
            return
        self._name(out, item, part)
        if level is Level.PIECE:
            part.pieces.append(text)
            self._chars_left -= len(text)
        elif level >= Level.SAID and part.kind.member:
            self._fill(out, item, part, given, ("part",) if level is Level.CLOSED else ())
        if level is Level.CLOSED:
            self._supply(item, item.closing_part()[:-1], "text_done_supplied")
            part.theirs, item.part = index, None
        part.level, says = max(level, part.level), level is Level.PIECE and bool(text)
        events = self._text_events(item, part, text) if says else ()
        self._step(events, out, delivers=says, plain=says and self._plain and out.raw is not None)

    def _part_for(self, out: Out, item: Item, kind: Kind, index: Any, level: Level) -> Part | None:
        """Return the part that a frame is about, and open one if none is open (Q116); None if the frame is withheld."""
        part = item.part
        if part is not None and not kind.list:
            empty = level is Level.SAID and kind.item == "function_call" and not out.value.get(kind.member)
            if part.said or (empty and not part.pieces):  # these wait until no limit can have cut them (Q25)
                self._withhold(out, "late_call" if part.said else "arguments_empty")
                return None
            return part
        if part is not None and part.kind.list == kind.list:
            if level is Level.OPENED and part.kind is kind and part.theirs == index and not part.pieces:
                self._withhold(out, "part_repeated")
                return None
            # A content index may grow with every token (Q119).
            same = part.kind is kind and not part.said and (kind.list != "summary" or part.theirs in (index, None))
            if level is Level.CLOSED or (same and level is not Level.OPENED):
                return part
        if level is Level.CLOSED and not (kind.member and kind.item == item.type):
            self._withhold(out, "done_repeated")
            return None
        self._supply(item, item.closing_part(), "part_closed")
        if level is not Level.OPENED:
            self._supply(item, item.frames(kind, {"type": kind.part, kind.member: ""})[:1], "part_supplied")
            item.lists[kind.list][-1].theirs = index
            return item.part
        return item.open_part(kind, out.value["part"], index)

    def _fill(self, out: Out, item: Item, part: Part, given: Mapping[str, Any], path: Path) -> None:
        """Make the text that a done event holds at a path and the pieces that came the same."""
        kind, came = part.kind, part.text
        text: Any = given.get(kind.member)
        if is_object(text):  # Q18
            text = dumps(text).decode()
            out.edit([Edit("arguments_not_text", path, kind.member, text)])
        if text == came:
            return
        if not isinstance(text, str) or not text:
            out.edit([Edit("text_missing", path, kind.member, came)])
        elif not part.said and text.startswith(came):
            rest = item.frames(kind, {kind.member: text[len(came) :]}, part.index)[Level.PIECE]
            self._supply(item, [rest], "delta_supplied")
        elif item.number is not None and (_json(text) is ABSENT or _json(text) != _json(came)):
            self._damage()

    def _aside(self, out: Out, place: int) -> None:
        """Pass an annotation, or the state of a tool that the upstream runs, as part of its item."""
        item, kind = self._items.get(place), out.value["type"]
        part = item.part if item is not None and kind == "response.output_text.annotation.added" else None
        if item is None or item.ended or not (part or kind.startswith(f"response.{item.type}")):
            self._withhold(out, "item_unknown")
            return
        self._name(out, item, part)
        if part is not None:
            part.annotations.append(out.value.get("annotation"))
        self._step((), out)

    # -- the end of an item -------------------------------------------------------------------------------------------

    def _item_done(self, out: Out, place: int) -> None:
        given, item = out.value["item"], self._items.get(place)
        if item is not None and item.split:
            if not item.ended:
                self._close(item, "item_split")
            self._withhold(out, "item_split")
            return
        if item is not None and item.ended and item in (self._by_id.get(str(given.get("id"))), self._order[-1]):
            self._withhold(out, "done_repeated")
            return
        if item is not None and item.type != given["type"] and not self._makes_way(out, item):
            return
        if item is None or item.ended:
            item = self._supply_item(place, given)
        self._complete(out, item)
        self._end(out, item)

    def _complete(self, out: Out, item: Item) -> None:
        """Make the item of a done event and its streamed parts the same."""
        given: dict[str, Any] = out.value["item"]
        self._note(item, given)
        out.edit(item.ids(given, ("item",)))
        part = item.part
        if part is not None and part.kind.member:
            elements = as_list(given.get(part.kind.list))[part.index :] if part.kind.list else [given]
            if elements and is_object(elements[0]):
                path = ("item", part.kind.list, part.index) if part.kind.list else ("item",)
                self._fill(out, item, part, elements[0], path)
        if item.number is None or item.type != "function_call" or out.value["item"]["arguments"]:
            self._supply(item, item.closing_part(), "part_closed")
        for name, parts in item.lists.items():
            for element in map(as_object, as_list(given.get(name))[len(parts) :]):
                kind = frames.kind_of(element, name, item.type)
                self._supply(item, frames.needed(kind, item.frames(kind, element)), "part_supplied")
        filled = [name for name, parts in item.lists.items() if name and parts and not as_list(given.get(name))]
        out.edit([Edit("text_missing", ("item",), name, item.whole("")[name]) for name in filled])

    def _end(self, out: Out, item: Item) -> None:
        """Send the last frame of an item."""
        given: dict[str, Any] = out.value["item"]
        item.take(out.value)
        self._open, n = None, out.n
        if item.number is not None:
            if item.type not in frames.OF_ITEM:
                text = dumps(given.get(CLIENT_CALLS[item.type][0])).decode()
                self._step([model.ToolArgumentsDelta(n=n, choice=0, call=item.number, text=text)])
            if given.get("status") == "incomplete":
                self._withhold(out, "cut_call_stop")  # some clients would run the call
            elif item.type == "function_call" and _json(given["arguments"]) is ABSENT:
                self._doubt = item, out, item.number
            else:
                self._hand_over(out, item, item.number)
            return
        events: list[Event] = []
        if item.type.endswith("_call"):
            bad = given.get("status") in ("failed", "incomplete") or bool(given.get("error"))
            events = [self._progress(n, given, "failed" if bad else "completed")]
        elif item.type.endswith("_output") and str(given.get("call_id")) in self._ran:
            events = [self._progress(n, given, "completed")]
        elif item.type == "reasoning" and given.get("encrypted_content"):
            proof = given["encrypted_content"]
            events = [model.Proof(n=n, choice=0, call=None, kind="encrypted_content", value=proof)]
        self._done.append(given)
        self._step(events, out, delivers=True)

    def _hand_over(self, out: Out, item: Item, number: int) -> None:
        if item.type == "function_call" and not out.value["item"]["arguments"]:  # Q25
            _, delta, done, _ = item.frames(frames.OF_ITEM[item.type], {"arguments": "{}"}, 0)
            text = model.ToolArgumentsDelta(n=out.n, choice=0, call=number, text="{}")
            self._step((text,), named(out.n, delta, "arguments_empty"), delivers=True)
            self._step((), named(out.n, done, "arguments_empty"))
            out.edit([Edit("arguments_empty", ("item",), "arguments", "{}")])
        complete = model.ToolArgumentsComplete(n=out.n, choice=0, call=number)
        item.value = out.value["item"]
        self._done.append(item.value)
        self._step((complete, model.HandedOver(n=out.n, choice=0, call=number)), out, delivers=True)

    def _settle(self, *, cut: bool) -> None:
        """Decide about a call whose arguments are not JSON: a limit has cut it, or it is malformed."""
        if self._doubt is not None:
            (item, out, number), self._doubt = self._doubt, None
            if cut:
                self._withhold(out, "cut_call_stop")
            else:
                self._hand_over(out, item, number)

    # -- the end of the answer ----------------------------------------------------------------------------------------

    def _lose(self) -> None:
        """Withhold what waits for the end of a call, since that will not come; report the calls among it."""
        self._settle(cut=False)
        for out in (out for outs in self._queue.values() for out in outs):
            item = as_object(out.value.get("item"))
            name = item.get("name") or CLIENT_CALLS.get(str(item.get("type")), ("", ""))[1]
            if out.value["type"] == ADDED and frames.is_client_call(item) and isinstance(name, str) and name:
                call_id = str(item.get("call_id") or f"call_{self._stream}_{self._calls}")
                number, self._calls = self._calls, self._calls + 1
                self._step([model.ToolCallStarted(n=out.n, choice=0, call=number, id=call_id, name=name)])
            self._withhold(out, "waiting_lost")
        self._queue.clear()

    def _close_all(self, output: Sequence[dict[str, Any]], *, whole: bool) -> None:
        """End what is open, and supply the items that are only in the last frame, which most clients do not read.

        A call that nothing ends stays open.
        """
        self._cutting = not whole
        while self._open is not None:
            if self._open.type in TEXTS:
                self._close(self._open, "item_closed", "completed" if whole else "incomplete")
            else:
                self._close_call(self._open, output, whole=whole)
            self._advance()
        for given, known in zip(output, self._known(output), strict=True):
            cut = not whole and frames.is_client_call(given) and given.get("status") != "completed"
            if isinstance(given.get("type"), str) and known is None and not cut:
                place = self._fresh_place
                value = frame_value(DONE, output_index=place, item=given)
                self._item_done(named(self._n, value, "item_done_supplied"), place)
        self._settle(cut=not whole)

    def _close_call(self, item: Item, output: Sequence[dict[str, Any]], *, whole: bool) -> None:
        """End a call from the last frame, or, if the answer is whole, from its own arguments."""
        keys = {*_keys(item.value)}
        given = next((one for one in output if keys & {*_keys(one)}), None)
        text, said = ("", False) if item.part is None else (item.part.text, item.part.said)
        complete = item.number is None or said or (text.lstrip()[:1] == "{" and _json(text) is not ABSENT)
        if given is None and whole and complete:
            given = item.whole("completed")
        if given is not None and (whole or given.get("status") != "incomplete"):
            value = frame_value(DONE, output_index=item.place, item=given)
            self._item_done(named(self._n, value, "item_closed"), item.place)
        if self._open is item:
            if whole:  # its last frame never came, so no client runs it
                self._damage()
            item.ended, self._open = True, None

    def _known(self, output: Sequence[Mapping[str, Any]]) -> list[Item | None]:
        """Return which items the elements of the last output are: by their ids, or by their place (Q111).

        hermes-agent gives them no ids, and another order than its frames had: then it is the first of its type.
        """
        found: list[Item | None] = []
        for given in output:
            items = [self._by_id[key] for key in _keys(given) if key in self._by_id]
            found.append(next((item for item in items if item.type == given.get("type")), None))
        taken, free = {*found}, dict[str, list[Item]]()
        for number, given in enumerate(output):
            here = self._order[number] if len(self._order) == len(output) else self._items.get(number)
            if found[number] is None and here not in taken and here is not None and here.type == given.get("type"):
                found[number] = here
                taken.add(here)
        for item in reversed(self._order):
            if item not in taken:
                free.setdefault(item.type, []).append(item)
        for number, given in enumerate(output):
            if found[number] is None and not given.get("id") and (row := free.get(as_text(given.get("type")))):
                found[number] = row.pop()
        return found


def _keys(item: Mapping[str, Any]) -> list[str]:
    """Return by what an item is known: its id, and that of its call."""
    call_id = f"{item.get('type')}:{item['call_id']}" if item.get("call_id") else ""
    return [key for key in (item.get("id"), call_id) if isinstance(key, str) and key]


def _json(text: Any) -> Any:
    return parse(text.encode("utf-8", "replace")) if isinstance(text, str) else ABSENT
