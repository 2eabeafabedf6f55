"""The state of one output item, kept from its canonical frames: what is open in it, and how it is closed."""

from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import joined_surrogates
from .frames import ANNOTATED, DONE, OF_DELTA, OF_DONE, OF_PART, PART_KINDS, PARTS, Kind, frame_value

__all__ = ["TEXTS", "Item", "Part"]

#: Items that we can close: what they say is what was streamed.
TEXTS: Final = frozenset({"message", "reasoning"})


class Part:
    """A text that is streamed: a part of an item, or the arguments of a call."""

    __slots__ = ("annotations", "closed", "given", "index", "kind", "pieces", "said", "theirs")

    def __init__(self, kind: Kind | None, index: int, theirs: Any, given: Mapping[str, Any]) -> None:
        #: None if we do not know the part.
        self.kind = kind
        self.index = index
        #: The upstream's index for it, None for a part that it never opened.
        self.theirs = theirs
        #: The part as it was opened.
        self.given = given
        self.pieces: list[str] = []
        self.annotations: list[Any] = []
        #: Its done event has come, and that of the part around it.
        self.said = self.closed = False

    @property
    def text(self) -> str:
        """The text so far."""
        text = "".join(self.pieces)
        return text if text.isascii() else joined_surrogates(text)

    def whole(self) -> dict[str, Any]:
        """Return the part as far as it has come."""
        if self.kind is None:
            return {**self.given}
        notes = {"annotations": self.annotations} if self.kind.part == "output_text" else {}
        return {**self.given, self.kind.member: self.text, **notes}


class Item:
    """One output item under the id that the client sees."""

    __slots__ = ("came", "ended", "id", "lists", "number", "part", "place", "silent", "split", "type", "value")

    def __init__(self, place: int, value: Mapping[str, Any], *, came: bool) -> None:
        self.place = place
        #: The item as it was added, and later as it was done.
        self.value = value
        self.id = str(value.get("id") or "")
        self.type: str = value["type"]
        #: The number of a call that the client runs.
        self.number: int | None = None
        #: The upstream added it.
        self.came = came
        #: We closed it or its continuation ourselves: the upstream's own frames that close it say something else.
        self.split = False
        #: A call without a name, which no client knows yet.
        self.silent = False
        self.ended = False
        self.lists: dict[str, list[Part]] = {"content": [], "summary": []}
        kind = OF_PART.get(self.type)
        #: The text that goes on.
        self.part: Part | None = None if kind is None else Part(kind, 0, None, {})

    def open_part(self, parts: str, given: Mapping[str, Any], theirs: Any) -> Part:
        """Return a new part at the end of a list."""
        kind = OF_PART.get(str(given.get("type")))
        known = kind is not None and kind.item == self.type and kind.list == parts
        part = self.part = Part(kind if known else None, len(self.lists[parts]), theirs, given)
        self.lists[parts].append(part)
        return part

    def take(self, value: Mapping[str, Any]) -> None:
        """Follow a canonical frame of this item, but for its start."""
        event, part = value["type"], self.part
        if event == DONE:
            self.value, self.ended, self.part = value["item"], True, None
            return
        if event in PART_KINDS and event.endswith(".added"):
            self.open_part(PART_KINDS[event], value["part"], None)
            return
        assert part is not None, "a text is inside its part"
        if event in OF_DELTA:
            part.pieces.append(value["delta"])
        elif event in OF_DONE:
            part.said = True
        elif event == ANNOTATED:
            part.annotations.append(value.get("annotation"))
        else:
            part.closed, self.part = True, None

    def closing_part(self) -> list[dict[str, Any]]:
        """Return the frames that are still due of the open part."""
        part = self.part
        if part is None:
            return []
        kind, frames = part.kind, list[dict[str, Any]]()
        parts = kind.list if kind is not None else next(name for name, those in self.lists.items() if part in those)
        head = {"item_id": self.id, "output_index": self.place, **({f"{parts}_index": part.index} if parts else {})}
        if kind is not None and not part.said:
            logprobs = {"logprobs": list[Any]()} if kind.part == "output_text" else {}
            frames.append(frame_value(kind.done, **head, **{kind.member: part.text}, **logprobs))
        if parts:
            frames.append(frame_value(f"{PARTS[parts]}.done", **head, part=part.whole()))
        return frames

    def whole(self, status: str) -> dict[str, Any]:
        """Return the item as far as it has come."""
        given = {"status": status} if "status" in self.value or self.type != "reasoning" else {}
        whole = {**self.value, **given}
        for name, parts in self.lists.items():
            if parts:
                whole[name] = [part.whole() for part in parts]
        if self.part is not None and self.part.kind is not None and not self.part.kind.list:
            whole[self.part.kind.member] = self.part.text
        return whole

    def closing(self, status: str) -> list[dict[str, Any]]:
        """Return the frames that close it as it is."""
        return [*self.closing_part(), frame_value(DONE, output_index=self.place, item=self.whole(status))]
