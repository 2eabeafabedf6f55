"""What must not come back to a model: progress markers and our own warnings inside the assistant's words of a history

Clients keep what they were shown and send it again, and a model that reads `` `💻 ls -la` `` in its own words begins to
write it instead of calling a tool (hermes issue 6972). Only whole lines of that shape count as markers.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ..json_text import as_list, as_object, dumps
from ..splice import Action, Edit, Op, locate
from .write import WARNING

__all__ = ["Found", "edits", "found"]

_PICTOGRAPH: Final = "(?:[\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0f\u200d]*)+"
#: A pictograph, a blank, a label, in backticks and alone on a line: as hermes wrote them until its pull 7500.
_MARKER: Final = re.compile(f"^[ \t]*`{_PICTOGRAPH} [^`\n]{{1,200}}`[ \t]*$\n?", re.MULTILINE)


class Found(NamedTuple):
    """In one piece of an assistant's text."""

    #: Where it stands in the body.
    path: tuple[str | int, ...]
    key: str
    markers: int
    warnings: int
    #: The text without them; empty where nothing else was said, and then it is left as it is: providers refuse an
    #: assistant that says nothing.
    rest: str


def found(body: bytes, asked: Any) -> list[Found]:
    """In every assistant's message of a chat request; `asked` is the body parsed."""
    if not _suspicious(body):
        return []
    return [one for path, key, text in _texts(asked) if (one := _in_text(path, key, text)) is not None]


def edits(body: bytes, marks: Sequence[Found]) -> list[Edit]:
    """What takes them out of the body."""
    ops = [Op("history", one.path, Action.SET, one.key, dumps(one.rest)) for one in marks if one.rest]
    return locate(body, ops)


def _suspicious(body: bytes) -> bool:
    """Whether it has the bytes without which nothing is found, in escapes or in UTF-8; 0.7 us of a short one."""
    if b"`\\u" in body or b"\\u26" in body:
        return True
    return not body.isascii() and (b"`\xf0" in body or b"`\xe2" in body or b"\xe2\x9a\xa0" in body)


def _in_text(path: tuple[str | int, ...], key: str, text: str) -> Found | None:
    rest, markers = _MARKER.subn("", text)
    rest, warnings = WARNING.subn("", rest)
    if not markers and not warnings:
        return None
    return Found(path, key, markers, warnings, rest.strip())


def _texts(asked: Any) -> Iterable[tuple[tuple[str | int, ...], str, str]]:
    for number, message in enumerate(as_list(as_object(asked).get("messages"))):
        said: dict[str, Any] = as_object(message)
        if said.get("role") != "assistant":
            continue
        content = said.get("content")
        if isinstance(content, str):
            yield ("messages", number), "content", content
        for place, part in enumerate(as_list(content)):
            text = as_object(part).get("text")
            if isinstance(text, str):
                yield ("messages", number, "content", place), "text", text
