"""What a chat completions request contains: its facts, new tool results, and marks that do not belong in a history.

Nothing here raises on a body of any shape.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..core.json_text import Edit, Path, as_list, as_object, dumps, locate
from ..core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from ..core.settings import Facts
from .chunk import Entry, function_of
from .write import NOTE, WARNING, preview

__all__ = ["LEGACY_ID", "Marks", "Result", "Results", "facts", "find_marks", "remove_marks", "results_in"]

#: A legacy `function_call` has no id; the one of the first choice gets this, and clients send no other back.
LEGACY_ID = "function_call_0"


def facts(body: Any) -> Facts:
    """Return what emission must know of a request."""
    request: dict[str, Any] = as_object(body)
    model, choices = request.get("model"), request.get("n")
    tools = map(as_object, [*as_list(request.get("tools")), *as_list(request.get("functions"))])
    names = [(function_of(tool)[0] or tool).get("name") for tool in tools]  # a legacy function has its name itself
    return Facts(
        stream=request.get("stream") is True,
        usage=as_object(request.get("stream_options")).get("include_usage") is True,
        model=model if isinstance(model, str) else "",
        choices=1 if choices is None else choices if type(choices) is int else None,
        tools=frozenset(name for name in names if isinstance(name, str) and name),
    )


# -- tool results -----------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """One result. An orphan answers no call of the last assistant message, and has no name and no arguments."""

    id: str
    name: str
    #: A preview, as long as a lifecycle frame may show.
    output: str
    #: The chat protocol has no word for this; some clients send `is_error` all the same.
    failed: bool = False
    orphan: bool = False
    #: The arguments of the call, as the history repeats them.
    arguments: str = ""


class Results(NamedTuple):
    """The results of one request, in the order of its messages, each id once."""

    results: list[Result]
    #: How many messages precede the assistant message that they answer.
    after: int
    #: Results beyond those that are kept.
    more: int


def results_in(body: Any) -> Results | None:
    """Return the tool results after the last assistant message, or None if there are none.

    The history before that message is not read: a request that repeats every earlier result brings only the new ones,
    ids that a provider reuses each turn meet no other turn, and a retry brings what the first request brought.
    """
    messages: list[Any] = as_list(as_object(body).get("messages"))
    answers: list[dict[str, Any]] = []
    at = len(messages) - 1
    while at >= 0 and (message := as_object(messages[at])).get("role") != "assistant":
        if message.get("role") in ("tool", "function"):
            answers.append(message)
        at -= 1
    if not answers:
        return None
    calls = _calls(as_object(messages[at]) if at >= 0 else {})
    found: dict[str, Result] = {}
    more = 0
    for message in reversed(answers):
        result = _result(message, calls)
        if result.id not in found and len(found) == RESULTS_MAX:
            more += 1
        else:
            found.setdefault(result.id, result)
    return Results(list(found.values()), max(0, at), more)


def _calls(message: dict[str, Any]) -> dict[str, Entry]:
    """Return each call by its id; of two with one id the first."""
    given: list[Any] = [*as_list(message.get("tool_calls"))]
    if legacy := as_object(message.get("function_call")):
        given.append({"id": LEGACY_ID, "function": legacy})
    return {entry.id: entry for entry in (Entry((), as_object(one)) for one in reversed(given)) if entry.id}


def _result(message: dict[str, Any], calls: dict[str, Entry]) -> Result:
    given: Any = message.get("tool_call_id")
    call_id = given if isinstance(given, str) else ""
    if message.get("role") == "function":  # which names the function instead
        call_id = LEGACY_ID if LEGACY_ID in calls and calls[LEGACY_ID].name == message.get("name") else ""
    call = calls.get(call_id) or Entry((), {})
    content: Any = message.get("content")
    parts: list[Any] = [{"text": content}] if isinstance(content, str) else as_list(content)
    text = ""
    for part in parts:
        piece = part if isinstance(part, str) else as_object(part).get("text")
        if isinstance(piece, str) and len(text) < PREVIEW_BYTES_MAX:
            text += piece[:PREVIEW_BYTES_MAX]
    failed = any(as_object(part).get("is_error") is True for part in (message, *parts))
    return Result(call_id, call.name, preview(text), failed, orphan=call_id not in calls, arguments=call.text)


# -- marks in a history -----------------------------------------------------------------------------------------------
#
# Clients keep what they were shown and send it again, and a model that reads `` `💻 ls -la` `` in its own words begins
# to write it instead of calling a tool (hermes issue 6972). A mark must look exactly as it was written; in doubt it is
# the model's own: a quotation that is left does less harm than one that is cut out of what was said.

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


def find_marks(body: bytes, value: Any) -> list[Marks]:
    """Return the marks in every assistant message of a request; `value` is the body parsed."""
    if not any(trace in body for trace in _TRACES):
        return []
    messages = enumerate(as_list(as_object(value).get("messages")))
    return [marks for number, message in messages for marks in _in_message(number, as_object(message))]


def remove_marks(body: bytes, found: Sequence[Marks]) -> list[Edit]:
    """Return the edits that remove them from the body."""
    new: dict[Path, bytes | None] = {}
    for path, key, _, _, rest, repairable in found:
        if repairable and not rest and key == "text":
            new[path] = None
        elif repairable:
            new[*path, key] = dumps(rest or None)
    return locate(body, new)


def _in_message(number: int, message: dict[str, Any]) -> list[Marks]:
    if message.get("role") != "assistant":
        return []
    content: Any = message.get("content")
    if isinstance(content, str):
        found = _in_text(("messages", number), "content", content)
        remains = bool(message.get("tool_calls"))
    else:
        found = list[Marks]()
        for place, part in enumerate(as_list(content)):
            if isinstance(text := as_object(part).get("text"), str):
                found += _in_text(("messages", number, "content", place), "text", text)
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
