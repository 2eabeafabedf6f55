"""Generate docs/formats.md: the formats and the table of losses, from `replay/formats/table.py`."""

from wiretape.replay.formats.exchange import LOSSES
from wiretape.replay.formats.table import EXPORTS, FORMATS

__all__ = ["formats"]

HEAD = """\
# Import and export

Generated from `replay/formats/` by `make docs`.

    wiretape import recorded.har -o tapes/weather.tape
    wiretape import cassette.yaml -o tapes/weather.tape --format vcr
    wiretape export tapes/weather.tape --format sse -o weather.sse
    wiretape export tapes/weather.tape --format har -o weather.har

`import` reads another tool's recording and writes a sealed tape, redacted and normalised like any other
([sealed-tapes.md](sealed-tapes.md)). It detects the format from the content; choose one with `--format` if it cannot.
With `--exact` every byte is kept, and a file with secrets is refused. The tape holds the records that the proxy would
have written, and its `open` record names the format (`imported`). Both verbs print one line for everything that the
format cannot hold (with `--json`: `lost`, with `code`, `count` and `text`). A file that cannot be read gives exit code
3 and one line.

Cassettes in YAML need PyYAML: `pip install 'wiretape[vcr]'`.

Flows of mitmproxy are imported through mitmproxy's own HAR export:

    mitmdump -nr flows --set hardump=flows.har
    wiretape import flows.har -o tapes/weather.tape

## What import assumes

- Without recorded times, the clock advances by one microsecond a read. A replay at original speed is then as fast as
  one at `instant`.
- Without HTTP framing, a clean end of the connection is assumed, and the protocol decides whether the stream is
  complete. It is `truncated` if it stops inside an event, contains nothing, or lacks its protocol's closing event:
  `message_stop` (Messages), `response.completed` and its siblings (Responses), a finish reason (Gemini, completions),
  `"done": true` (Ollama), `[DONE]` (Assistants), `message-end` (Cohere), or an error. Torn JSON is `truncated` too.
- With HTTP framing, the framing decides, as it does in the proxy.
- Fixtures of aimock hold no bytes. Wiretape writes a chat stream from their results.
"""

HAR = """\
## HAR members of Wiretape

HAR has no place for read boundaries and endings. `export` adds three members to each entry, which other readers ignore
and `import` reads: bytes, read boundaries, times and ending of a tape survive the round trip.
"""

MEMBERS = {
    "_chunks": "for each read `at_us` (microseconds since `startedDateTime`) and `bytes`; "
    "chunks with `ts` in milliseconds are read too",
    "_ending": "`cause`, `ending`, `flags`, `framed`, `broke`, as in the tape's `end` record ([tape.md](tape.md))",
    "_wiretape": "`request_us`, `attempt_us`, `head_us`, `end_us`, `created_us`, `framing`, `upstream`",
}

MORE = """\
The log's own `_wiretape` holds `exact`, `redacted` and `normalised` from the header of the sealed tape. An import is
`exact` only with `--exact`, and only if the log does not say otherwise.

Bodies that are not UTF-8 are written as base64: marked by `encoding` in a response, by `_encoding` in `postData`.

## How each format is read

| format | detected by | notes |
|---|---|---|
"""

READ = {
    "sse": (
        "a first line with `data:`, `event:`, `id:`, `retry:` or `:`",
        "one stream; its request path is guessed from the first payload",
    ),
    "curl": (
        "`HTTP/` at the start",
        (
            "the last head counts; with `curl --raw` each chunk is a read, and a missing last chunk is a cut, "
            "like a body shorter than its `Content-Length`"
        ),
    ),
    "har": ("JSON with `log`", "entries without a response and WebSocket entries are skipped"),
    "vcr": (
        "`interactions`, in JSON or YAML",
        (
            "all versions of VCR.py, `parsed_body`, and the typed bodies of cassetter; YAML scalars follow version 1.2 "
            "([decision](decisions/2026-11-19-pyyaml.md))"
        ),
    ),
    "chunks": ("JSON objects, one a line", "nothing is added, so no stream ends with `[DONE]`"),
    "aimock": (
        "JSON with `fixtures`",
        "texts, calls, blocks, reasoning, usage and errors; the request is one that the fixture matches",
    ),
}


def _mark(code: str, always: tuple[str, ...], sometimes: tuple[str, ...]) -> str:
    return "always" if code in always else "some" if code in sometimes else ""


def formats() -> str:
    """Return the whole page."""
    columns = [(name, each.always, each.sometimes) for name, each in FORMATS.items()]
    columns += [(f"to {name}", each.always, each.sometimes) for name, each in EXPORTS.items()]
    lines = ["## Formats", "", "| format | what | import | export |", "|---|---|---|---|"]
    for name, each in FORMATS.items():
        lines.append(f"| `{name}` | {each.what} | yes | {EXPORTS[name].what if name in EXPORTS else '-'} |")
    lines += ["", "## What is lost", "", "In every file (always) or in some; the verb prints which, and how often.", ""]
    lines += [f"| lost | {' | '.join(name for name, _, _ in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for code, text in LOSSES.items():
        marks = " | ".join(_mark(code, always, sometimes) for _, always, sometimes in columns)
        lines.append(f"| `{code}`: {text} | {marks} |")
    lines += ["", HAR, "| member | holds |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in MEMBERS.items())]
    lines += ["", MORE + "\n".join(f"| `{name}` | {READ[name][0]} | {READ[name][1]} |" for name in FORMATS)]
    return "\n".join([HEAD, *lines, ""])
