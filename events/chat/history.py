"""Find progress markers and our own warnings in the assistant's messages of a history, to keep them from models.

Clients keep what they were shown and send it again, and a model that reads `` `💻 ls -la` `` in its own words begins to
write it instead of calling a tool (hermes issue 6972). What is taken for one must stand exactly as it was written; in
doubt it is the model's own: a quotation that is left does less harm than one that is cut out of what was said.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..core.json_text import as_list, as_object, dumps
from ..core.splice import Action, Edit, Op, locate
from .hermes import NOTE
from .write import WARNING

__all__ = ["Found", "edits", "found"]

#: Those of hermes' tools, and the one of all others, until its pull 7500 (11 April 2026). A skin of one's own may have
#: had more, which stay. What people put before a label or a button (🚀 🐛 ✨ ✓ ⚠) is mostly none of them.
_PICTURES: Final = "⌨⏰◀⚙⚡✍❓🌐🎨🏠🐍👁👆💻📄📋📖📚📜📝📨📸🔀🔊🔍🔎🔧🔮🖥🖼🚪🧠🧪"
#: What hermes wrote on a line of its own: the picture and the tool's main argument, or its name. A
#: backtick in the argument makes it look like a sentence with code in it; then it stays.
_LINE: Final = f"`[{_PICTURES}]\ufe0f? [^`\r\n]+`"
_MARKER: Final = re.compile(f"^{_LINE}\r?$\n?", re.MULTILINE)
#: A blank line is between any two, as each brought its own line breaks.
_MARKERS: Final = re.compile(f"{_LINE}(?:(?:\r?\n){{2,}}{_LINE})*(?:\r?\n)?")
#: Lines of nothing else with nothing else between: labels and buttons come so, and one that is no marker tells of all.
_CODE: Final = re.compile("^[ \t]*`[^`\r\n]+`[ \t]*(?:\r?\n[ \t\r\n]*`[^`\r\n]+`[ \t]*)*\r?$\n?", re.MULTILINE)
#: Code that is shown is not a marker. CommonMark 4.5: a block ends with a line of no fewer of the same characters.
_FENCED: Final = re.compile(
    "^ {0,3}(?:(`{3,}+)[^`\n]*+|(~{3,}+)[^\n]*+)\n(?:[^\n]*\n)*?(?: {0,3}(?:\\1`*|\\2~*)[ \t]*\r?$|[^\n]*\\Z)",
    re.MULTILINE,
)
#: After a warning: the end of its line, and of the text.
_LINE_END: Final = re.compile("\r?$", re.MULTILINE)
_TEXT_END: Final = re.compile("\\s*\\Z")
#: Before a quotation, on its line.
_QUOTES: Final = ('"', "'", "`", "“", "\u2018", "„", "«", "(", "[", ">", "-", "*", "#", "|")


class Found(NamedTuple):
    """Markers and warnings in one piece of an assistant's text."""

    #: Its place in the body.
    path: tuple[str | int, ...]
    key: str
    markers: int
    warnings: int
    #: The text without them.
    rest: str
    #: Whether it can be taken out: providers refuse an assistant that says nothing.
    repairable: bool
    #: No text is left, and the message has other content.
    empty: bool = False


def found(body: bytes, asked: Any) -> list[Found]:
    """In every assistant's message of a chat request; `asked` is the body parsed."""
    if not _suspicious(body):
        return []
    messages = enumerate(as_list(as_object(asked).get("messages")))
    return [one for number, message in messages for one in _in_message(number, as_object(message))]


def edits(body: bytes, marks: Sequence[Found]) -> list[Edit]:
    """Return the edits that remove them from the body."""
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
    fences = [edge for code in _spans(_FENCED, text) for edge in code]
    markers, warnings = _outside(fences, _markers(text)), _outside(fences, _warnings(text))
    gone = sorted([*markers, *warnings])
    if not gone:
        return None
    kept = [text[end:begin] for (_, end), (begin, _) in pairwise([(0, 0), *gone, (len(text), len(text))])]
    if not kept[0].strip():  # the line ends that were written around a marker go with it
        first = next((place for place, piece in enumerate(kept) if piece.strip()), 0)
        kept = ["", kept[first].lstrip("\r\n"), *kept[first + 1 :]]
    rest = kept[0]
    for piece in kept[1:]:
        between = rest.endswith("\n\n") and piece.startswith("\n\n")  # a paragraph of its own was there
        rest += piece[2:] if between else piece
    if not kept[-1].strip():
        rest = rest.rstrip()
    return Found(path, key, len(markers), len(warnings), rest if rest.strip() else "", repairable=False)


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [found.span() for found in pattern.finditer(text)]


def _markers(text: str) -> list[tuple[int, int]]:
    lines = (code.span() for code in _CODE.finditer(text) if _MARKERS.fullmatch(code[0]))
    return [line.span() for begin, end in lines for line in _MARKER.finditer(text, begin, end)]


def _warnings(text: str) -> list[tuple[int, int]]:
    ours = [span for span in _spans(WARNING, text) if _is_paragraph(text, *span) or _is_last(text, *span)]
    return [*ours, *(span for span in _spans(NOTE, text) if _is_paragraph(text, *span))]


def _is_paragraph(text: str, begin: int, end: int) -> bool:
    """Return whether it is written as we and hermes write it: after a blank line or first, and up to its line end."""
    before = text[max(begin - 3, 0) : begin]
    return (not before or before.endswith(("\n\n", "\n\r\n"))) and _LINE_END.match(text, end) is not None


def _is_last(text: str, begin: int, end: int) -> bool:
    """Return whether it is written as we did before there was a blank line: last in the text, and not quoted."""
    return _TEXT_END.match(text, end) is not None and not text[:begin].rstrip(" ").endswith(_QUOTES)


def _outside(fences: list[int], spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [span for span in spans if not bisect(fences, span[0]) % 2]


def _suspicious(body: bytes) -> bool:
    """Return whether the bytes of a marker are in it, in escapes (.NET writes those of backticks too) or in
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
