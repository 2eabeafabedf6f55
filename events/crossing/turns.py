"""What was said before, in no dialect: turns and their parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal

from ..core.json_text import dumps, is_object, parse
from .given import Given
from .losses import HINTS

__all__ = ["FAILED_MARK", "Call", "Media", "Part", "Refusal", "Result", "Text", "Thought", "Turn", "hints_of", "joined"]

_Role = Literal["system", "developer", "user", "assistant"]
#: Cache hints of a part or a tool, by the name of their member.
_Hints = Mapping[str, Any]
_Proofs = tuple[tuple[str, Any], ...]

#: How a failed result begins in a dialect that has no member for it; it is read back.
FAILED_MARK: Final = "[tool error]\n"
#: How Claude Code wraps arguments that are not JSON; the same where a dialect demands an object.
_UNPARSED: Final = "__unparsedToolInput"


def hints_of(given: Given) -> _Hints:
    """Return the cache hints of a part or a tool."""
    return {name: given.get(name) for name in HINTS if given.get(name) is not None}


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text."""

    text: str
    hints: _Hints = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Text in which the model refused."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image or a file: a URL, or base64 data with its type."""

    kind: Literal["image", "file"]
    url: str = ""
    data: str = ""
    media_type: str = ""
    detail: str = ""
    name: str = ""
    hints: _Hints = field(default_factory=dict[str, Any])

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}" if self.data else self.url

    @staticmethod
    def of(kind: Literal["image", "file"], url: str, hints: _Hints, *, detail: str = "", name: str = "") -> "Media":
        """Return an image or a file from its URL, which may hold the data itself."""
        head, _, data = url.partition(",")
        if not head.startswith("data:") or not head.endswith(";base64"):
            return Media(kind=kind, url=url, detail=detail, name=name, hints=hints)
        media_type = head.removeprefix("data:").removesuffix(";base64")
        return Media(kind=kind, data=data, media_type=media_type, detail=detail, name=name, hints=hints)


@dataclass(frozen=True, slots=True)
class Thought:
    """Thinking, with what its upstream wants back with it."""

    text: str
    proofs: _Proofs = ()
    #: _Proofs of calls that an envelope carried, by the id of the call.
    calls: Mapping[str, _Proofs] = field(default_factory=dict[str, _Proofs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of one of the client's tools."""

    id: str
    name: str
    namespace: str = ""
    #: `function`, `custom` (the arguments are free text) or `tool_search`.
    kind: str = "function"
    arguments: str = ""
    proofs: _Proofs = ()

    @property
    def object(self) -> dict[str, Any]:
        """The arguments as the object that every dialect takes."""
        if self.kind == "custom":
            return {"input": self.arguments}
        value: Any = parse(self.arguments.encode("utf-8", "replace")) if self.arguments.strip() else {}
        wrapped = {_UNPARSED: {"raw": self.arguments, "len": len(self.arguments)}}
        return value if is_object(value) else wrapped

    @property
    def json(self) -> str:
        """The arguments as JSON, in the words of the model where they are an object."""
        value = self.object
        same = self.kind != "custom" and self.arguments.strip() and _UNPARSED not in value
        return self.arguments if same else dumps(value).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call resulted in."""

    id: str
    parts: tuple[Text | Media, ...]
    failed: bool = False
    #: Kind and name of its call.
    kind: str = "function"
    name: str = ""

    @staticmethod
    def of(call_id: str, parts: "Sequence[Part]", given: Given, *, failed: bool = False) -> "Result":
        """Return a result; the mark of a failure in its text is read back."""
        kept = [part for part in parts if isinstance(part, Text | Media)]
        if len(kept) < len(parts):
            raise given.refuse("a result of anything but text, images and files does not cross.")
        first = kept[0] if kept else None
        if isinstance(first, Text) and first.text.startswith(FAILED_MARK):
            failed, kept[0] = True, replace(first, text=first.text.removeprefix(FAILED_MARK))
        return Result(id=call_id, parts=tuple(kept), failed=failed)


Part = Text | Refusal | Media | Thought | Call | Result

#: What each side can say.
_SAYS: Final[Mapping[_Role, tuple[type[Part], ...]]] = {
    "system": (Text,),
    "developer": (Text,),
    "user": (Text, Media, Result),
    "assistant": (Text, Refusal, Thought, Call),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said at once; results are parts of a user's turn."""

    role: _Role
    parts: tuple[Part, ...]

    @staticmethod
    def of(role: _Role, parts: Sequence[Part], given: Given) -> "Turn":
        """Return a turn; raise RequestError for a part that this side cannot say in every dialect."""
        for part in parts:
            if not isinstance(part, _SAYS[role]):
                raise given.refuse(f"a message of the {role} with {type(part).__name__.lower()} does not cross.")
        return Turn(role, tuple(_joined_texts(parts) if role == "assistant" else parts))

    @property
    def text(self) -> str:
        return joined(self.parts)


def _joined_texts(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts of an answer with neighbouring texts as one: citations split a sentence into several."""
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, Text)):
        if not is_text:
            yield from group
            continue
        texts = [part for part in group if isinstance(part, Text)]
        hints = next((text.hints for text in reversed(texts) if text.hints), texts[0].hints)
        yield Text("".join(text.text for text in texts), hints)


def joined(parts: Sequence[Part]) -> str:
    """Return the texts of some parts, a blank line between any two."""
    return "\n\n".join(part.text for part in parts if isinstance(part, Text | Refusal) and part.text)
