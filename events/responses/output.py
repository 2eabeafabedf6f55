"""The output of one answer: frames of items to canonical ones, in which items follow one another.

A frame of another item waits for the end of the one that is open; a message or a thought ends as soon as another item
says something, and its later pieces become another item. Frames that an upstream leaves out are supplied.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core import model
from ..core.json_text import ABSENT, Path, as_list, as_object, as_text, dumps, is_object, parse
from ..core.limits import HELD_BYTES_MAX, KEPT_CHARS_MAX
from ..core.model import Event
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from .frames import (
    ADDED,
    ANNOTATED,
    CLIENT_CALLS,
    DONE,
    OF_DELTA,
    OF_DONE,
    OF_PART,
    PART_KINDS,
    PARTS,
    PREFIXES,
    Kind,
    begun,
    frame_value,
    is_client_call,
    named,
    part_frames,
    says,
)
from .items import TEXTS, Item, Part

__all__ = ["CHOICES", "Output"]

#: Every frame is about the one answer.
CHOICES: Final = (0,)


class Output:
    """The items of one answer. Its steps are those since the last frame."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stream = context.stream_id
        #: The record that is read.
        self.n = 0
        self.steps: list[Step] = []
        #: In the order of sending, and what was sent of those that have ended.
        self.order: list[Item] = []
        self.done: list[Mapping[str, Any]] = []
        #: The item that is open, and how many calls of the client there are.
        self.open: Item | None = None
        self.calls = 0
        self.chars_left = KEPT_CHARS_MAX
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

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, events: Sequence[Event], out: Out | None = None, *, delivers: bool = False) -> None:
        """Add a step."""
        n = self.n if out is None else out.n
        self.steps.append(Step(n, events, out, delivers, CHOICES if out is not None else ()))

    def withhold(self, out: Out, repair: str) -> None:
        """Enter in the ledger that a frame is not sent."""
        out.withhold(repair, self._context.ledger)

    def damage(self) -> None:
        """Damage the call that is open, since unreadable bytes may have been part of its arguments."""
        if self.open is not None and self.open.number is not None:
            self.step([model.ToolCallDamaged(n=self.n, choice=0, call=self.open.number)])

    @property
    def overflow(self) -> bool:
        """Whether more came than any answer has."""
        return self.chars_left < 0 or self._bytes_left < 0

    def text_events(self, item: Item, part: Part, text: str) -> Sequence[Event]:
        """Return the events of a piece of text that was added to its part."""
        kind = part.kind
        if kind is not None and kind.event is not None:
            if kind.list == "summary" and part.index and len(part.pieces) == 1:
                text = "\n\n" + text  # another part of a thought is another paragraph
            return (kind.event(n=self.n, choice=0, text=text),)
        if item.number is None:
            return ()
        return (model.ToolArgumentsDelta(n=self.n, choice=0, call=item.number, text=text),)

    def _supply(self, item: Item, values: Sequence[dict[str, Any]], repair: str) -> None:
        """Send frames of ours that go on with an item."""
        for value in values:
            out = named(self.n, value, repair)
            if value["type"] == DONE:
                self._end(out, item)
                continue
            item.take(value)
            text, part = value.get("delta"), item.part
            if not item.silent:
                self.step(self.text_events(item, part, text) if text and part else (), out, delivers=bool(text))

    def _close(self, item: Item, repair: str, status: str = "completed") -> None:
        """End a message or a thought whose end has not come, or will say something else."""
        self._supply(item, item.closing(status), repair)
        item.split = True

    # -- the order of items -------------------------------------------------------------------------------------------

    def take(self, out: Out) -> None:
        """Read a frame of the item that is open or begins, or keep it until that has ended."""
        place = self._place(out.value)
        if self.open is not None and place != self.open.place:
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
            if self.open is not None:
                if not self._speaking or self.open.type not in TEXTS:
                    return
                self._close(self.open, "item_split")
            place = next(iter(self._queue))
            outs = self._queue.pop(place)
            self._speaking -= sum(out.value["type"] != ADDED for out in outs)
            for out in outs:
                self._read(out, place)

    def _place(self, value: Mapping[str, Any]) -> int:
        """Return the upstream's index of a frame's item; where it is missing or wrong, that of the item's id."""
        index: Any = value.get("output_index")
        item_id: Any = value.get("item_id") or as_object(value.get("item")).get("id")
        known = self._by_id.get(item_id) if isinstance(item_id, str) else None
        if known is not None and (known is self.open or type(index) is not int):
            return known.place
        if type(index) is int:
            return index
        return self._fresh_place if value["type"] == ADDED or self.open is None else self.open.place

    def _read(self, out: Out, place: int) -> None:
        kind = out.value["type"]
        if kind in OF_DELTA:
            self._delta(out, place)
        elif kind in OF_DONE:
            self._text_done(out, place)
        elif kind == ADDED:
            self._item_added(out, place)
        elif kind == DONE:
            self._item_done(out, place)
        elif kind in PART_KINDS and kind.endswith(".added"):
            self._part_added(out, place)
        elif kind in PART_KINDS:
            self._part_done(out, place)
        else:
            self._aside(out, place)

    # -- the start of an item -----------------------------------------------------------------------------------------

    def _item_added(self, out: Out, place: int) -> None:
        given: Any = out.value.get("item")
        if not is_object(given) or not isinstance(given.get("type"), str):
            self.withhold(out, "item_null")  # Q120
            return
        before = self._items.get(place)
        if before is not None and not before.ended:
            if before.type == given["type"] and given.get("id") in (None, "", before.id):
                self.withhold(out, "item_repeated")
                return
            if before.type not in TEXTS:
                self._wait(~place, out)
                return
            self._close(before, "item_split")
        self._begin(out, place, given)

    def _begin(self, out: Out, place: int, given: dict[str, Any]) -> Item:
        """Begin an item with its first frame; a call without a name waits for its end (Q17)."""
        self.settle(cut=self._cutting)
        kind: str = given["type"]
        edits = self._ids(given)
        fresh = begun(given)
        for member in ("content", "summary", "arguments", "input"):
            if fresh.get(member) in ([], "") and given.get(member) != fresh[member]:
                edits.append(Edit("item_begun", ("item",), member, fresh[member]))
        out.edit(edits)
        item = self._items[place] = self.open = Item(place, out.value["item"], came=out.came is not None)
        self._fresh_place = max(self._fresh_place, place + 1)
        self.order.append(item)
        self.chars_left -= out.size
        for key in (given.get("id"), item.id, _call_key(given), _call_key(item.value)):
            if isinstance(key, str) and key:
                self._by_id.setdefault(key, item)
        if is_client_call(given) and not (self._context.settings.hermes and kind == "function_call"):
            item.number, self.calls = self.calls, self.calls + 1
            item.silent = not (CLIENT_CALLS[kind][1] or as_text(given.get("name")))
        if item.silent:
            self.withhold(out, "call_without_name")
        else:
            self._announce(out, item)
        return item

    def _ids(self, given: Mapping[str, Any]) -> list[Edit]:
        """Return the edits that give a new item an id of its own, and a call one too (Q1)."""
        kind, item_id, call_id = given["type"], given.get("id"), given.get("call_id")
        edits: list[Edit] = []
        if not isinstance(item_id, str) or not item_id or item_id in self._by_id:
            made = f"{PREFIXES.get(kind, 'item')}_{self._stream}_{len(self.order)}"
            edits.append(Edit("item_id", ("item",), "id", made))
        if kind in CLIENT_CALLS:
            if not isinstance(call_id, str) or not call_id or call_id in self._call_ids:
                call_id = f"call_{self._stream}_{len(self.order)}"
                while call_id in self._call_ids:  # the upstream made the same one up
                    call_id += "_"
                edits.append(Edit("call_id", ("item",), "call_id", call_id))
            self._call_ids.add(call_id)
        return edits

    def _announce(self, out: Out, item: Item) -> None:
        events: list[Event] = []
        if item.number is not None:
            name = item.value.get("name") or CLIENT_CALLS[item.type][1]
            custom, call_id = item.type == "custom_tool_call", item.value["call_id"]
            events = [model.ToolCallStarted(n=out.n, choice=0, call=item.number, id=call_id, name=name, custom=custom)]
        elif item.type.endswith("_call"):
            events = [self._progress(out.n, item.value, "running")]
        self.step(events, out, delivers=says(out.value))

    def _progress(self, n: int, item: Mapping[str, Any], status: str) -> Event:
        call_id = str(item.get("call_id") or item.get("id") or "")
        name = self._ran.setdefault(call_id, str(item.get("name") or item["type"].removesuffix("_call")))
        return model.ToolProgress(n=n, id=call_id, name=name, status=status)

    def _item_for(self, out: Out, place: int, wanted: str) -> Item | None:
        """Return the open item that a frame is about; begin one if it has none (Q116, Q119)."""
        item = self._items.get(place)
        if item is not None and not item.ended:
            if item.type == wanted:
                return item
            if item.type not in TEXTS:
                self._wait(~place, out)
                return None
            self._close(item, "item_split")
        elif item is not None and wanted not in TEXTS and out.value.get("item_id", item.id) == item.id:
            self.withhold(out, "late_call")
            return None
        value: dict[str, Any] = {"type": wanted, "id": out.value.get("item_id")}
        if wanted == "message":
            value |= {"status": "in_progress", "role": "assistant"}
        value = frame_value(ADDED, output_index=place, item=begun(value))
        begins = self._begin(named(self.n, value, "item_supplied"), place, value["item"])
        begins.split = item is not None and wanted in TEXTS
        return begins

    # -- texts --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _name(out: Out, item: Item, part: Part | None, parts: str = "") -> None:
        """Name the item and the part of a frame as the client knows them (Q111, Q119)."""
        edits: list[Edit] = []
        if out.value.get("item_id") != item.id:
            edits.append(Edit("item_id", (), "item_id", item.id))
        parts = part.kind.list if part is not None and part.kind is not None else parts
        if part is not None and parts and out.value.get(f"{parts}_index") != part.index:
            edits.append(Edit("part_index", (), f"{parts}_index", part.index))
        out.edit(edits)

    def _part_for(self, out: Out, item: Item, kind: Kind) -> Part:
        """Return the open part that a text belongs to; open one if it has none (Q116)."""
        part, index = item.part, out.value.get(kind.index_key)
        if part is not None and part.kind is kind and not part.said:
            # A content index may grow with every token (Q119).
            if kind.list != "summary" or part.theirs in (index, None):
                return part
        elif part is not None and not kind.list:
            return part
        self._supply(item, item.closing_part(), "part_closed")
        notes = {"annotations": list[Any]()} if kind.part == "output_text" else {}
        head = {"item_id": item.id, "output_index": item.place, kind.index_key: len(item.lists[kind.list])}
        given = {"type": kind.part, kind.member: "", **notes}
        self._supply(item, [frame_value(f"{PARTS[kind.list]}.added", **head, part=given)], "part_supplied")
        assert item.part is not None, "it was opened just now"
        item.part.theirs = index
        return item.part

    def _delta(self, out: Out, place: int) -> None:
        kind, text = OF_DELTA[out.value["type"]], out.value.get("delta")
        item = self._item_for(out, place, kind.item)
        if item is None:
            return
        if not isinstance(text, str):
            self.withhold(out, "delta_not_text")
            self.damage()
            return
        part = self._part_for(out, item, kind)
        if part.said:  # of a call, whose whole text has come
            self.withhold(out, "late_call")
            return
        self._name(out, item, part)
        part.pieces.append(text)
        self.chars_left -= len(text)
        if item.silent:
            self.withhold(out, "call_without_name")
        else:
            self.step(self.text_events(item, part, text) if text else (), out, delivers=bool(text))

    def _repeats(self, out: Out, item: Item | None, *, repeated: bool) -> bool:
        """Return whether a done event was supplied before, or came before, and withhold it then."""
        if item is not None and (item.split or item.ended or repeated):
            self.withhold(out, "item_split" if item.split else "done_repeated")
            return True
        return False

    def _text_done(self, out: Out, place: int) -> None:
        item, kind = self._items.get(place), OF_DONE[out.value["type"]]
        index = out.value.get(kind.index_key)
        said: Sequence[Part] = ()
        if item is not None:
            said = item.lists[kind.list] if kind.list else [item.part] if item.part is not None else []
        if self._repeats(
            out, item, repeated=any(one.kind is kind and one.said and one.theirs == index for one in said)
        ):
            return
        item = self._item_for(out, place, kind.item)
        if item is None:
            return
        part = self._part_for(out, item, kind)
        if kind.item == "function_call" and not (part.pieces or out.value.get(kind.member)):
            self.withhold(out, "arguments_empty")  # until it is known that no limit has cut them (Q25)
            return
        self._name(out, item, part)
        self._fill(out, item, part, (), kind.member)
        part.said = not item.silent
        if item.silent:
            self.withhold(out, "call_without_name")
        else:
            self.step((), out)

    def _fill(self, out: Out, item: Item, part: Part, path: Path, member: str) -> None:
        """Make the text of a done event and the pieces that came the same."""
        container: Any = out.value
        for key in path:
            container = container[key]
        text: Any = container.get(member)
        came = part.text
        if is_object(text):  # Q18
            text = dumps(text).decode()
            out.edit([Edit("arguments_not_text", path, member, text)])
        if text == came:
            return
        if not isinstance(text, str) or not text:
            out.edit([Edit("text_missing", path, member, came)])
        elif not part.said and text.startswith(came):
            self._say(item, part, text[len(came) :])
        elif item.number is not None and not _same_json(text, came):
            self.damage()

    def _say(self, item: Item, part: Part, text: str) -> None:
        """Supply a delta with text that is only in a done event."""
        kind = part.kind
        assert kind is not None, "only texts are filled"
        head: dict[str, Any] = {"item_id": item.id, "output_index": item.place}
        head |= {kind.index_key: part.index} if kind.list else {}
        head |= {"logprobs": list[Any]()} if kind.part == "output_text" else {}
        self._supply(item, [frame_value(kind.delta, **head, delta=text)], "delta_supplied")

    def _part_added(self, out: Out, place: int) -> None:
        parts, given = PART_KINDS[out.value["type"]], as_object(out.value.get("part"))
        kind = OF_PART.get(str(given.get("type")))
        kind = kind if kind is not None and kind.list == parts else None
        wanted = kind.item if kind is not None else "reasoning" if parts == "summary" else "message"
        item = self._item_for(out, place, wanted)
        if item is None:
            return
        index, before = out.value.get(f"{parts}_index"), item.part
        if before is not None and not before.pieces and before.kind is kind and before.theirs == index:
            self.withhold(out, "part_repeated")
            return
        self._supply(item, item.closing_part(), "part_closed")
        edits: list[Edit] = []
        if not isinstance(given.get("type"), str):
            given = {"type": "summary_text" if parts == "summary" else "output_text", "text": ""}
            edits.append(Edit("part_missing", (), "part", given))
        elif kind is not None and given.get(kind.member) != "":
            given = {**given, kind.member: ""}
            edits.append(Edit("part_begun", ("part",), kind.member, ""))
        out.edit(edits)
        part = item.open_part(parts, given, index)
        self._name(out, item, part, parts)
        self.step((), out)

    def _part_done(self, out: Out, place: int) -> None:
        item, parts = self._items.get(place), PART_KINDS[out.value["type"]]
        index, given = out.value.get(f"{parts}_index"), as_object(out.value.get("part"))
        closed = item is not None and any(one.closed and one.theirs == index for one in item.lists[parts])
        if item is None or self._repeats(out, item, repeated=closed):
            if item is None:
                self.withhold(out, "done_repeated")
            return
        if item.part is None or item.part not in item.lists[parts]:
            self._supply_part(item, parts, given, ends=False)
        part = item.part
        if part is None or part not in item.lists[parts]:
            self.withhold(out, "done_repeated")
            return
        self._name(out, item, part, parts)
        if not isinstance(given.get("type"), str):
            out.edit([Edit("part_missing", (), "part", part.whole())])
        elif part.kind is not None:
            self._fill(out, item, part, ("part",), part.kind.member)
        self._supply(item, item.closing_part()[:-1], "text_done_supplied")
        part.closed, part.theirs, item.part = True, index, None
        self.step((), out)

    def _supply_part(self, item: Item, parts: str, given: Mapping[str, Any], *, ends: bool) -> None:
        """Supply the frames of a part that is only in a done event."""
        kind = OF_PART.get(str(given.get("type")))
        if kind is not None and kind.item == item.type and kind.list == parts:
            self._supply(item, item.closing_part(), "part_closed")
            values = part_frames(item.id, item.place, kind, len(item.lists[parts]), given)
            self._supply(item, values if ends else values[:-1], "part_supplied")

    def _aside(self, out: Out, place: int) -> None:
        """Pass an annotation, or the state of a tool that the upstream runs, as part of its item."""
        item = self._items.get(place)
        kind = out.value["type"]
        noted = kind == ANNOTATED
        fits = item is not None and (item.part is not None if noted else kind.startswith(f"response.{item.type}"))
        if item is None or item.ended or not fits:
            self.withhold(out, "item_unknown")
            return
        self._name(out, item, item.part if noted else None)
        if noted and item.part is not None:
            number = len(item.part.annotations)
            if out.value.get("annotation_index") != number:
                out.edit([Edit("part_index", (), "annotation_index", number)])
            item.part.annotations.append(out.value.get("annotation"))
        self.step((), out)

    # -- the end of an item -------------------------------------------------------------------------------------------

    def _item_done(self, out: Out, place: int) -> None:
        given, item = out.value.get("item"), self._items.get(place)
        if not is_object(given) or not isinstance(given.get("type"), str):
            self.withhold(out, "item_null")
            return
        if item is not None and item.split:
            if not item.ended:
                self._close(item, "item_split")
            self.withhold(out, "item_split")
            return
        if item is not None and item.type != given["type"] and not item.ended:
            if item.type not in TEXTS:
                self.withhold(out, "item_type")
                self.damage()
                return
            self._close(item, "item_split")
        elif item is not None and item.ended and item in (self._by_id.get(str(given.get("id"))), self.order[-1]):
            self.withhold(out, "done_repeated")
            return
        if item is None or item.ended:
            value = frame_value(ADDED, output_index=place, item=begun(given))
            item = self._begin(named(self.n, value, "item_supplied"), place, value["item"])
        if item.silent:
            self._introduce(item, given)
        if item.silent:
            self.withhold(out, "call_without_name")
            return
        self._complete(out, item)
        self._end(out, item)

    def _introduce(self, item: Item, given: dict[str, Any]) -> None:
        """Begin a call whose name came with its end (Q17)."""
        name, call_id, part = given.get("name"), given.get("call_id"), item.part
        if not (isinstance(name, str) and name) or part is None:
            return
        item.silent, item.value = False, {**item.value, "name": name}
        if isinstance(call_id, str) and call_id and call_id not in self._call_ids:
            item.value = {**item.value, "call_id": call_id}
            self._call_ids.add(call_id)
            self._by_id.setdefault(_call_key(item.value), item)
        value = frame_value(ADDED, output_index=item.place, item=item.value)
        self._announce(named(self.n, value, "item_supplied"), item)
        text, part.pieces = part.text, []
        if text:
            self._say(item, part, text)

    def _complete(self, out: Out, item: Item) -> None:
        """Make the item of a done event and its streamed parts the same."""
        given: dict[str, Any] = out.value["item"]
        edits = [Edit("item_id", ("item",), "id", item.id)] if given.get("id") != item.id else []
        if item.value.get("call_id") not in (None, given.get("call_id")):
            edits.append(Edit("call_id", ("item",), "call_id", item.value["call_id"]))
        for key in (given.get("id"), _call_key(given)):
            if isinstance(key, str) and key:
                self._by_id.setdefault(key, item)
        out.edit(edits)
        part = item.part
        if part is not None and part.kind is not None:
            path: Path = ("item",)
            if part.kind.list:
                elements = as_list(given.get(part.kind.list))
                path = ("item", part.kind.list, part.index) if is_object(_at(elements, part.index)) else ()
            if path:
                self._fill(out, item, part, path, part.kind.member)
        if item.number is None or item.type != "function_call" or out.value["item"]["arguments"]:
            self._supply(item, item.closing_part(), "part_closed")
        for name in item.lists:
            for element in as_list(given.get(name))[len(item.lists[name]) :]:
                self._supply_part(item, name, as_object(element), ends=True)
        filled = [name for name, parts in item.lists.items() if parts and not as_list(given.get(name))]
        out.edit([Edit("text_missing", ("item",), name, item.whole("")[name]) for name in filled])

    def _end(self, out: Out, item: Item) -> None:
        """Send the last frame of an item."""
        given: dict[str, Any] = out.value["item"]
        item.take(out.value)
        self.open, n = None, out.n
        if item.number is not None:
            if item.type not in ("function_call", "custom_tool_call"):
                text = dumps(given.get(CLIENT_CALLS[item.type][0])).decode()
                self.step([model.ToolArgumentsDelta(n=n, choice=0, call=item.number, text=text)])
            if given.get("status") == "incomplete":
                self.withhold(out, "cut_call_stop")  # some clients would run the call
            elif item.type == "function_call" and not _is_json(given["arguments"]):
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
        self.done.append(given)
        self.step(events, out, delivers=True)

    def _hand_over(self, out: Out, item: Item, number: int) -> None:
        if item.type == "function_call" and not out.value["item"]["arguments"]:  # Q25
            frames = part_frames(item.id, item.place, OF_PART[item.type], 0, {"arguments": "{}"})
            text = model.ToolArgumentsDelta(n=out.n, choice=0, call=number, text="{}")
            self.step((text,), named(out.n, frames[0], "arguments_empty"), delivers=True)
            self.step((), named(out.n, frames[1], "arguments_empty"))
            out.edit([Edit("arguments_empty", ("item",), "arguments", "{}")])
        complete = model.ToolArgumentsComplete(n=out.n, choice=0, call=number)
        item.value = out.value["item"]
        self.done.append(item.value)
        self.step((complete, model.HandedOver(n=out.n, choice=0, call=number)), out, delivers=True)

    def settle(self, *, cut: bool) -> None:
        """Decide about a call whose arguments are not JSON: a limit has cut it, or it is malformed."""
        if self._doubt is not None:
            (item, out, number), self._doubt = self._doubt, None
            if cut:
                self.withhold(out, "cut_call_stop")
            else:
                self._hand_over(out, item, number)

    # -- the end of the answer ----------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Withhold what waits for the end of a call, since that will not come; report the calls among it."""
        for outs in self._queue.values():
            for out in outs:
                item = as_object(out.value.get("item"))
                name = item.get("name") or CLIENT_CALLS.get(str(item.get("type")), ("", ""))[1]
                if out.value["type"] == ADDED and is_client_call(item) and isinstance(name, str) and name:
                    call_id = str(item.get("call_id") or f"call_{self._stream}_{self.calls}")
                    number, self.calls = self.calls, self.calls + 1
                    self.step([model.ToolCallStarted(n=out.n, choice=0, call=number, id=call_id, name=name)])
                self.withhold(out, "waiting_lost")
        self._queue.clear()

    def close(self, output: Sequence[dict[str, Any]], *, whole: bool) -> None:
        """End what is open, and supply the items that are only in the last frame, which most clients do not read.

        A call that nothing ends stays open.
        """
        self._cutting = not whole
        while self.open is not None:
            if self.open.type in TEXTS:
                self._close(self.open, "item_closed", "completed" if whole else "incomplete")
            else:
                self._close_call(self.open, output, whole=whole)
            self._advance()
        for given, known in zip(output, self.known(output), strict=True):
            cut = not whole and is_client_call(given) and given.get("status") != "completed"
            if isinstance(given.get("type"), str) and known is None and not cut:
                place = self._fresh_place
                value = frame_value(DONE, output_index=place, item=given)
                self._item_done(named(self.n, value, "item_done_supplied"), place)
        self.settle(cut=not whole)

    def _close_call(self, item: Item, output: Sequence[dict[str, Any]], *, whole: bool) -> None:
        """End a call from the last frame, or, if the answer is whole, from its own arguments."""
        keys = [key for key in (item.id, _call_key(item.value)) if key]
        known = [one for one in output if one.get("id") in keys or _call_key(one) in keys]
        text, said = ("", False) if item.part is None else (item.part.text, item.part.said)
        complete = item.number is None or said or (text.lstrip()[:1] == "{" and _is_json(text))
        given = known[0] if known else None
        if given is None and whole and complete:
            given = item.whole("completed")
        if given is not None and (whole or given.get("status") != "incomplete"):
            value = frame_value(DONE, output_index=item.place, item=given)
            self._item_done(named(self.n, value, "item_closed"), item.place)
        if self.open is item:
            if item.silent and item.number is not None:  # a client could not run it
                self.step([model.ToolArgumentsDelta(n=self.n, choice=0, call=item.number, text=text)])
            elif whole:  # its last frame never came, so no client runs it
                self.damage()
            item.ended, self.open = True, None

    def known(self, output: Sequence[Mapping[str, Any]]) -> list[Item | None]:
        """Return which items the elements of the last output are: by their ids, or by their place (Q111).

        hermes-agent gives them no ids, and another order than its frames had: then it is the first of its type.
        """
        came = [item for item in self.order if item.came]
        rows: dict[str, deque[Item]] = {}
        for item in came:
            rows.setdefault(item.type, deque()).append(item)
        found: list[Item | None] = []
        taken = set[Item | None]()
        for number, given in enumerate(output):
            here = came[number] if number < len(came) else None
            keys = (given.get("id"), _call_key(given))
            items = [self._by_id[key] for key in keys if isinstance(key, str) and key in self._by_id]
            candidates = [item for item in (*items, here) if item is not None and item.type == given.get("type")]
            if not candidates and not given.get("id"):
                row = rows.get(as_text(given.get("type")), deque[Item]())
                while row and row[0] in taken:
                    row.popleft()
                candidates = [row[0]] if row else []
            found.append(candidates[0] if candidates else None)
            taken.add(found[-1])
        return found


def _at(elements: Sequence[Any], index: int) -> Any:
    return elements[index] if index < len(elements) else None


def _call_key(item: Mapping[str, Any]) -> str:
    return f"{item.get('type')}:{item['call_id']}" if item.get("call_id") else ""


def _is_json(text: Any) -> bool:
    return isinstance(text, str) and parse(text.encode("utf-8", "replace")) is not ABSENT


def _same_json(one: str, other: str) -> bool:
    return _is_json(one) and parse(one.encode("utf-8", "replace")) == parse(other.encode("utf-8", "replace"))
