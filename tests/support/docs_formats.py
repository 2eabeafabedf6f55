"""docs/formats.md: what is read and written, and the table of losses, from `replay/formats/table.py`."""

from wiretape.replay.formats.losses import LOSSES
from wiretape.replay.formats.table import EXPORTS, FORMATS

__all__ = ["formats"]

HEAD = """\
# Recordings of others

Drawn from `replay/formats/` by `make docs`.

    wiretape import recorded.har -o tapes/weather.tape
    wiretape import cassette.yaml -o tapes/weather.tape --format vcr
    wiretape export tapes/weather.tape --format sse -o weather.sse
    wiretape export tapes/weather.tape --format har -o weather.har

`import` knows a format by the content of the file, `--format` names it where it does not, and `auto` is its default.
What it writes is a sealed tape: redacted and normalised like any other ([sealed-tapes.md](sealed-tapes.md)), with
`--exact` every byte as it came (which is refused where there are secrets). The records are those that the proxy would
have written, `open` says `imported` and the format, and the ending is what our own folds make of the bytes. Both
verbs print one line for each thing that the format cannot hold (`--json`: `lost`, with `code`, `count` and `text`).
Exit code 0, or 3 and one line for a file that cannot be read.

Nothing is made up to fill a gap, but for fixtures of aimock, which hold no bytes at all: theirs are ours. Where a
format knows no times, the clock goes on by a microsecond a read and the loss says so; a replay at original speed is
then as fast as one at `instant`. Where it does not know how the connection ended, an orderly end is taken for
granted, so that only the protocol's own terminator makes a stream `completed`. An event stream of another
protocol that stops inside an event, says nothing at all, or lacks the last word of its protocol is `truncated`: of
Messages `message_stop`, of Responses `response.completed` and its like, of Gemini and completions a finish, of Ollama
`"done": true`, of Assistants `[DONE]`, of Cohere `message-end`; an error is one, too. So is JSON that is torn. Where
the file says how HTTP framed the answer, that decides, as it does in the proxy.
"""

HAR = """\
## What we add to HAR

HAR has no place for reads, and none for an ending. `export` writes three members of an entry that other readers skip,
and `import` reads them again: bytes, read boundaries, times and ending of a tape come back as they were.
"""

MEMBERS = {
    "_chunks": "of each read `at_us`, microseconds since `startedDateTime`, and `bytes`; "
    "chunks with `ts` in milliseconds are read too",
    "_ending": "`cause`, `ending`, `flags`, `framed`, `broke`, as on the tape's `end` ([tape.md](tape.md))",
    "_wiretape": "`request_us`, `attempt_us`, `head_us`, `end_us`, `created_us`, `framing`, `upstream`",
}

HOW = """\
`_wiretape` of the log itself says what sealing did to the tape: `exact`, `redacted`, `normalised`, as its header does.
An import is `exact` only with `--exact`, and not then where the log says that it is none.

A body that is not UTF-8 is base64, in an answer as HAR says it (`encoding`), in a request as `_encoding` beside
`postData.text`.

## How each is read
"""

READ = {
    "sse": (
        "a line that begins with `data:`, `event:`, `id:`, `retry:` or `:`",
        "one stream; its path is guessed from the first payload",
    ),
    "curl": (
        "`HTTP/` at its start",
        (
            "the last head counts; chunked framing that is still there (`curl --raw`) is taken off, each chunk is a "
            "read, and a missing last chunk is a cut; a body shorter than its `Content-Length` is one too"
        ),
    ),
    "har": ("JSON with `log`", "entries without an answer and websockets are left out"),
    "vcr": (
        "`interactions`, in JSON or YAML",
        (
            "VCR.py of all ages, `parsed_body`, cassetter's typed bodies; YAML without a library "
            "([why](decisions/2026-11-18-yaml-without-a-library.md))"
        ),
    ),
    "chunks": ("JSON objects, one a line", "nothing is added: none ends with `[DONE]`"),
    "aimock": (
        "JSON with `fixtures`",
        "texts, calls, blocks, reasoning, usage and errors; the request is what its match would take",
    ),
    "mitmproxy": (
        "a netstring that holds an object",
        "a flow with an error keeps it as its ending; of a flow that was streamed mitmproxy has no body",
    ),
}


def _mark(code: str, always: tuple[str, ...], sometimes: tuple[str, ...]) -> str:
    return "always" if code in always else "some" if code in sometimes else ""


def formats() -> str:
    """All of it."""
    columns = [(name, each.always, each.sometimes) for name, each in FORMATS.items()]
    columns += [(f"to {name}", always, sometimes) for name, (_, always, sometimes) in EXPORTS.items()]
    lines = ["## What there is", "", "| format | what | in | out |", "|---|---|---|---|"]
    for name, each in FORMATS.items():
        lines.append(f"| `{name}` | {each.what} | yes | {EXPORTS[name][0] if name in EXPORTS else '-'} |")
    lines += ["", "## What is lost", "", "Of every file, or of some. The verb says which, and how often.", ""]
    lines += [f"| lost | {' | '.join(name for name, _, _ in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for code, text in LOSSES.items():
        marks = " | ".join(_mark(code, always, sometimes) for _, always, sometimes in columns)
        lines.append(f"| `{code}`: {text} | {marks} |")
    lines += ["", HAR, "| member | holds |", "|---|---|", *(f"| `{name}` | {said} |" for name, said in MEMBERS.items())]
    lines += ["", HOW, "| format | known by | notes |", "|---|---|---|"]
    lines += [f"| `{name}` | {READ[name][0]} | {READ[name][1]} |" for name in FORMATS]
    return "\n".join([HEAD, *lines, ""])
