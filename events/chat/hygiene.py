"""What must not come back to a model: progress markers and our own warnings inside the assistant's words of a history

Clients keep what they were shown and send it again, and a model that reads `` `💻 ls -la` `` in its own words begins to
write it instead of calling a tool (hermes issue 6972). Only whole lines of that shape count as markers.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..json_text import as_list, as_object, dumps
from ..splice import Action, Edit, Op, locate
from .hermes import NOTE
from .write import WARNING

__all__ = ["Found", "edits", "found"]

#: Those of tools. What people begin a line of code with (✓ ✗ ★ ⚠ →) is none of them.
_PICTOGRAPH: Final = "(?:[\u2328\u23f0-\u23f3\u2699\u26a1\u270d\u270f\U0001f300-\U0001faff][\ufe0f\u200d]*)+"
#: A pictograph, a blank, a label, in backticks and alone on a line: as hermes wrote them until its pull 7500.
_MARKER: Final = re.compile(f"^[ \t]*`{_PICTOGRAPH} [^`\r\n]{{1,200}}`[ \t]*\r?$\n?", re.MULTILINE)
#: Code that is shown is nobody's marker.
_FENCED: Final = re.compile("^[ \t]*```.*?(?:^[ \t]*```|\\Z)", re.MULTILINE | re.DOTALL)


class Found(NamedTuple):
    """In one piece of an assistant's text."""

    #: Where it stands in the body.
    path: tuple[str | int, ...]
    key: str
    markers: int
    warnings: int
    #: The text without them.
    rest: str
    #: Whether it can be taken out: providers refuse an assistant that says nothing.
    repairable: bool
    #: Nothing is left of it, and something stands beside it.
    empty: bool = False


def found(body: bytes, asked: Any) -> list[Found]:
    """In every assistant's message of a chat request; `asked` is the body parsed."""
    if not _suspicious(body):
        return []
    messages = enumerate(as_list(as_object(asked).get("messages")))
    return [one for number, message in messages for one in _in_message(number, as_object(message))]


def edits(body: bytes, marks: Sequence[Found]) -> list[Edit]:
    """What takes them out of the body."""
    return locate(body, [_op(one) for one in marks if one.repairable])


def _op(one: Found) -> Op:
    if one.empty and one.key == "text":
        return Op("history", one.path, Action.OMIT)
    return Op("history", one.path, Action.SET, one.key, b"null" if one.empty else dumps(one.rest))


def _in_message(number: int, message: dict[str, Any]) -> list[Found]:
    if message.get("role") != "assistant":
        return []
    content, calls = message.get("content"), bool(message.get("tool_calls"))
    if isinstance(content, str):
        one = _in_text(("messages", number), "content", content)
        return [one._replace(repairable=bool(one.rest) or calls, empty=not one.rest)] if one is not None else []
    parts = [as_object(part).get("text") for part in as_list(content)]
    path = ("messages", number, "content")
    marks = [_in_text((*path, place), "text", text) for place, text in enumerate(parts) if isinstance(text, str)]
    some = [one for one in marks if one is not None]
    beside = len(parts) > sum(not one.rest for one in some)
    return [one._replace(repairable=bool(one.rest) or beside, empty=not one.rest) for one in some]


def _in_text(path: tuple[str | int, ...], key: str, text: str) -> Found | None:
    fenced = [code.span() for code in _FENCED.finditer(text)]
    markers = [span for span in _spans(_MARKER, text) if not any(begin <= span[0] < end for begin, end in fenced)]
    warnings = [*_spans(WARNING, text), *_spans(NOTE, text)]
    gone = sorted([*markers, *warnings])
    if not gone:
        return None
    kept = [text[end:begin] for (_, end), (begin, _) in pairwise([(0, 0), *gone, (len(text), len(text))])]
    if not kept[0].strip():  # the line ends that were written around a marker go with it
        kept = ["", *kept[1:]]
        first = next((place for place, piece in enumerate(kept) if piece.strip()), 0)
        kept[first] = kept[first].lstrip("\r\n")
    for place in range(1, len(kept)):
        if kept[place - 1].endswith("\n\n") and kept[place].startswith("\n\n"):  # a paragraph of its own was there
            kept[place] = kept[place][2:]
    rest = "".join(kept)
    if not kept[-1].strip():
        rest = rest.rstrip()
    return Found(path, key, len(markers), len(warnings), rest if rest.strip() else "", repairable=False)


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [found.span() for found in pattern.finditer(text)]


def _suspicious(body: bytes) -> bool:
    """Whether it has the bytes without which nothing is found, in escapes (.NET writes those of backticks too) or in
    UTF-8; 0.7 us of a short one.
    """
    escapes = b"\\u" in body
    if escapes and (b"`\\u" in body or b"\\u26" in body or b"\\u0060\\u" in body):
        return True
    if body.isascii():
        return False
    if b"`\xf0" in body or b"`\xe2" in body or b"\xe2\x9a\xa0" in body:
        return True
    return escapes and (b"\\u0060\xf0" in body or b"\\u0060\xe2" in body)
