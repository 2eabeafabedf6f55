"""Marks that do not belong in the history of a request: markers of tools, and our own warnings.

Clients keep what they were shown and send it again, and a model that reads `` `💻 ls -la` `` in its own words begins to
write it instead of calling a tool (hermes issue 6972). A mark must look exactly as it was written; in doubt it is the
model's own: a quotation that is left does less harm than one that is cut out of what was said.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..core.json_text import Edit, Path, as_list, as_object, dumps, locate
from .words import NOTE, WARNING

__all__ = ["Marks", "find_marks", "remove_marks"]

#: Those of hermes' tools, and the one of all others, until its pull 7500 (11 April 2026). A skin of one's own may have
#: had more, which stay. What people put before a label or a button (🚀 🐛 ✨ ✓ ⚠) is mostly none of them.
_PICTURES: Final = "⌨⏰◀⚙⚡✍❓🌐🎨🏠🐍👁👆💻📄📋📖📚📜📝📨📸🔀🔊🔍🔎🔧🔮🖥🖼🚪🧠🧪"
#: What hermes wrote on a line of its own: the picture and the tool's main argument, or its name. A
#: backtick in the argument makes it look like a sentence with code in it; then it stays.
_LINE: Final = f"`[{_PICTURES}]\ufe0f? [^`\r\n]+`"
_MARKER: Final = re.compile(f"^{_LINE}\r?$\n?", re.MULTILINE)
#: A blank line is between any two, as each brought its own line breaks.
_MARKERS: Final = re.compile(f"{_LINE}(?:(?:\r?\n){{2,}}{_LINE})*(?:\r?\n)?")
#: Lines of code with nothing but blanks between them. Labels and buttons look the same: one line that is not a marker
#: means that none of them is.
_CODE: Final = re.compile("^[ \t]*`[^`\r\n]+`[ \t]*(?:\r?\n[ \t\r\n]*`[^`\r\n]+`[ \t]*)*\r?$\n?", re.MULTILINE)
#: Code that is shown is not a marker. CommonMark 4.5: a block ends with a line of no fewer of the same characters.
_FENCED: Final = re.compile(
    "^ {0,3}(?:(`{3,}+)[^`\n]*+|(~{3,}+)[^\n]*+)\n(?:[^\n]*\n)*?(?: {0,3}(?:\\1`*|\\2~*)[ \t]*\r?$|[^\n]*\\Z)",
    re.MULTILINE,
)
#: A warning as we and hermes write it: after a blank line or first, and up to its line end.
_PARAGRAPH: Final = re.compile(f"(?:{WARNING}|{NOTE})(?=\r?$)", re.MULTILINE)
_AFTER_BLANK_LINE: Final = re.compile("\\A|(?<=\n\n)|(?<=\n\r\n)")
#: A warning as we wrote it before there was a blank line: last in the text. It must not be quoted.
_LAST: Final = re.compile(f"{WARNING}(?=\\s*\\Z)")
#: What precedes a quotation on its line.
_QUOTES: Final = ('"', "'", "`", "“", "\u2018", "„", "«", "(", "[", ">", "-", "*", "#", "|")
#: Bytes of every body with a mark: a backtick before a picture, or the sign of a warning, as UTF-8 or in JSON's escapes
#: (.NET escapes backticks too).
_TRACES: Final = (b"`\\u", b"\\u26", b"\\u0060", b"`\xf0", b"`\xe2", b"\xe2\x9a\xa0")


class Marks(NamedTuple):
    """Progress markers and our own warnings in one piece of an assistant's text."""

    #: Its place in the body.
    path: Path
    key: str
    markers: int
    warnings: int
    #: The text without them.
    rest: str
    #: Whether they can be removed: providers refuse an assistant message that says nothing.
    repairable: bool


def find_marks(body: bytes, value: Any, history: str, calls: str) -> list[Marks]:
    """Return the marks in every assistant message of a request; `value` is the body parsed.

    `history` is the member that holds the messages, `calls` the one of a message that holds calls.
    """
    if not any(trace in body for trace in _TRACES):
        return []
    messages = enumerate(as_list(as_object(value).get(history)))
    return [
        marks for number, message in messages for marks in _in_message((history, number), as_object(message), calls)
    ]


def remove_marks(body: bytes, found: Sequence[Marks]) -> list[Edit]:
    """Return the edits that remove them from the body."""
    new: dict[Path, bytes | None] = {}
    for path, key, _, _, rest, repairable in found:
        if repairable and not rest and key == "text":
            new[path] = None
        elif repairable:
            new[*path, key] = dumps(rest or None)
    return locate(body, new)


def _in_message(path: Path, message: dict[str, Any], calls: str) -> list[Marks]:
    if message.get("role") != "assistant":
        return []
    content: Any = message.get("content")
    if isinstance(content, str):
        found = _in_text(path, "content", content)
        remains = bool(message.get(calls))
    else:
        found = list[Marks]()
        for place, part in enumerate(as_list(content)):
            if isinstance(text := as_object(part).get("text"), str):
                found += _in_text((*path, "content", place), "text", text)
        remains = len(as_list(content)) > sum(not marks.rest for marks in found)
    return [marks._replace(repairable=bool(marks.rest) or remains) for marks in found]


def _in_text(path: Path, key: str, text: str) -> list[Marks]:
    lines = (code.span() for code in _CODE.finditer(text) if _MARKERS.fullmatch(code[0]))
    markers = [line.span() for begin, end in lines for line in _MARKER.finditer(text, begin, end)]
    last = [found.span() for found in _LAST.finditer(text) if not text[: found.start()].rstrip(" ").endswith(_QUOTES)]
    paragraphs = (found.span() for found in _PARAGRAPH.finditer(text) if _AFTER_BLANK_LINE.match(text, found.start()))
    warnings = [*{*last, *paragraphs}]
    fences = [edge for block in _FENCED.finditer(text) for edge in block.span()]
    markers, warnings = ([span for span in spans if not bisect(fences, span[0]) % 2] for spans in (markers, warnings))
    gone = sorted([*markers, *warnings])
    if not gone:
        return []
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
    return [Marks(path, key, len(markers), len(warnings), rest if rest.strip() else "", repairable=False)]
