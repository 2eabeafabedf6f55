"""Documents generated from the code: `make docs` writes them, a test compares them."""

import dataclasses
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import get_args

from typer.testing import CliRunner

from wiretape.events.core.lifecycle import STATUS_ON_WIRE, TABLE, TERMINAL, State
from wiretape.events.core.model import Ending, Event
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.load import shown
from wiretape.proxy.config.model import FLAGS, PREFIX, ROUTE, SERVER, TARGET, Config, Route, Setting, Target
from wiretape.proxy.limits import KEY_CHARS_MIN
from wiretape.replay.formats.exchange import LOSSES
from wiretape.replay.formats.table import EXPORTS, FORMATS

_CLI = """\
# The command line

Generated from `proxy/cli/main.py` by `make docs`.

Results go to stdout, logs and errors to stderr. An error is one line.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a problem was found, or something does not exist or is ambiguous |
| 2 | the command line or the configuration is invalid |
| 3 | something cannot be started or read: a port, a file, a folder, a lock |
| 130 | interrupted |

Every setting of [the configuration](configuration.md) is an option of `serve`, `doctor` and `config show`:
`idle_s = 60` is `--idle-s 60`. Reading verbs do not lock the data folder, so they work while a server runs.
"""


def cli() -> str:
    """Return the whole document."""
    said = [f"## wiretape {verb}".rstrip() + f"\n\n```text\n{_help(verb)}\n```\n" for verb in ("", *_verbs())]
    return "\n".join([_CLI, *said])


def _verbs() -> Iterator[str]:
    """Yield every verb that is not hidden."""
    yield from (str(verb.name) for verb in app.registered_commands)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        prefix = f"{group.name} " if isinstance(group.name, str) else ""
        yield from (f"{prefix}{verb.name}" for verb in group.typer_instance.registered_commands if not verb.hidden)


def _help(verb: str) -> str:
    said = CliRunner().invoke(app, [*verb.split(), "--help"], env={"COLUMNS": "100"}, prog_name="wiretape")
    assert said.exit_code == 0, said.output
    return said.output.strip()


_CONFIGURATION = """# Configuration

Generated from `proxy/config/model.py` by `make docs`.

`wiretape serve --upstream URL` needs no file. Flags override the environment, the environment overrides `wiretape.toml`
(in the working folder, or the file named by `--config` or `WIRETAPE_CONFIG`), and that overrides the defaults.
`wiretape config show` prints every setting and its source.

- An invalid value, or an unknown name in the file or among the flags, stops the start with one line naming the place.
- A variable that begins with `WIRETAPE_` and is nearly the name of a setting does so too: `Unknown setting
  WIRETAPE_PRT (did you mean WIRETAPE_PORT?)`. Any other is ignored; `serve`, `record`, `doctor` and `config show` list
  those on stderr, except the ones that a setting like `key_env` names.
- The variables that Kubernetes sets for a service named `wiretape` or `wiretape-NAME` are ignored, such as
  `WIRETAPE_SERVICE_HOST` or a `WIRETAPE_PORT` like `tcp://10.0.0.1:8787`. So are `WIRETAPE_CORPUS` and `WIRETAPE_LAWS`,
  which the tests of this repository read.
- Lists in variables and flags have commas between their items.
- Relative paths in the file start at its folder, all others at the working folder.
"""

_EXAMPLE = """## An example

```toml
port = 8787
upstream = "https://api.openai.com/v1"    # the default route: /v1/...
fallbacks = ["azure", "http://localhost:11434/v1"]
idle_s = 300                              # for every route

[routes.azure]                            # /azure/v1/...
upstream = "https://name.openai.azure.com/openai/deployments/gpt?api-version=2024-10-21"
key_env = "AZURE_OPENAI_KEY"

[routes.hermes]                           # /hermes/v1/...
upstream = "http://127.0.0.1:8642/v1"
hermes = true

[keys]                                    # Wiretape's own, in addition to WIRETAPE_KEY
alice = { env = "WIRETAPE_KEY_ALICE" }
bob = { file = "bob.key" }                # mode 0600 or less
```
"""

_SERVER = "## The server"

_ROUTE = """## Routes

At the top of the file, in the environment and as flags these apply to every route. Inside `[routes.NAME]` they apply to
that route and override the top of the file, but not environment and flags. Settings marked with * describe one
upstream: outside `[routes.NAME]` they apply to the default route only.
"""

_TARGET = """## Upstreams

At the top of the file for the default route, in `[routes.NAME]` for that route, in a table of `fallbacks` for that
fallback. Environment and flags apply to the default route. A key stays with its upstream: if you name another one with
`--upstream`, the key in the file is not used.

`fallbacks` is a list, in order: the name of a route (its first upstream), a URL, or a table of the settings below. A
fallback on another host than the first upstream does not get the caller's key unless it has `caller_key = true`.
"""

_KEYS = f"""## Wiretape's own keys

Set `{PREFIX}KEY`, or in `[keys]` one line per name: `{{ env = VARIABLE }}` or `{{ file = PATH }}`, never the key
itself. A key has at least {KEY_CHARS_MIN} characters. If there are any, every caller must present one as
`Authorization: Bearer`, `x-api-key`, `api-key`, `x-goog-api-key` or `ocp-apim-subscription-key`. None of these headers
is passed on, nor is `x-amz-security-token`, so each route then needs its own key for its upstream. Listening on any
address but this machine's loopback requires a key.
"""


def configuration() -> str:
    """Return the whole document."""
    parts = [_CONFIGURATION, _EXAMPLE, _SERVER + "\n", _settings(SERVER, Config(data=Path()))]
    parts += [
        _ROUTE,
        _settings(ROUTE, Route(name="", targets=())),
        _TARGET,
        _settings(TARGET, Target(name="", url="")),
        _KEYS,
    ]
    return "\n".join(parts)


def _settings(settings: tuple[Setting, ...], defaults: object) -> str:
    lines = ["| wiretape.toml | environment | flag | default | allowed | purpose |", "|---|---|---|---|---|---|"]
    for setting in settings:
        # The data folder is the platform's, and an upstream has no default.
        default = shown(attrgetter(setting.place)(defaults)) if setting.place not in ("", "data") else ""
        name = f"`{setting.name}`" + ("" if setting.shared else " *")
        flag = f"`{setting.flag}`" if setting.name in FLAGS else ""
        cells = (name, f"`{setting.environment}`", flag, f"`{default}`" if default else "")
        lines.append(f"| {' | '.join((*cells, setting.kind.allowed, setting.reason))} |")
    return "\n".join([*lines, ""])


_FORMATS = """\
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

_HAR = """\
## HAR members of Wiretape

HAR has no place for read boundaries and endings. `export` adds three members to each entry, which other readers ignore
and `import` reads: bytes, read boundaries, times and ending of a tape survive the round trip.
"""

_HAR_MEMBERS = {
    "_chunks": "for each read `at_us` (microseconds since `startedDateTime`) and `bytes`; "
    "chunks with `ts` in milliseconds are read too",
    "_ending": "`cause`, `ending`, `flags`, `framed`, `broke`, as in the tape's `end` record ([tape.md](tape.md))",
    "_wiretape": "`request_us`, `attempt_us`, `head_us`, `end_us`, `created_us`, `framing`, `upstream`",
}

_DETECTED = """\
The log's own `_wiretape` holds `exact`, `redacted` and `normalised` from the header of the sealed tape. An import is
`exact` only with `--exact`, and only if the log does not say otherwise.

Bodies that are not UTF-8 are written as base64: marked by `encoding` in a response, by `_encoding` in `postData`.

## How each format is read

| format | detected by | notes |
|---|---|---|
"""

_READ = {
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
    lines += [
        "",
        _HAR,
        "| member | holds |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in _HAR_MEMBERS.items()),
    ]
    lines += ["", _DETECTED + "\n".join(f"| `{name}` | {_READ[name][0]} | {_READ[name][1]} |" for name in FORMATS)]
    return "\n".join([_FORMATS, *lines, ""])


DOCS = Path(__file__).parents[2] / "docs"


def lifecycle() -> str:
    """Return the state table of events/core/lifecycle.py as a diagram and a table."""
    lines = ["# Tool lifecycle", "", "Generated from `events/core/lifecycle.py` by `make docs`.", "", "```mermaid"]
    lines += ["stateDiagram-v2", f"    [*] --> {State.ANNOUNCED.value}"]
    for state, moves in TABLE.items():
        lines += [f"    {state.value} --> {to.value}: {trigger.value}" for trigger, to in moves.items()]
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    lines += ["```", "", "| state | trigger | next state | status on the wire |", "|---|---|---|---|"]
    for state, moves in TABLE.items():
        status = f"`{STATUS_ON_WIRE[state]}`" if state in STATUS_ON_WIRE else "none"
        lines += [f"| {state.value} | {trigger.value} | {to.value} | {status} |" for trigger, to in moves.items()]
        lines += [] if moves else [f"| {state.value} | nothing | - | {status} |"]
    return "\n".join([*lines, ""])


def events() -> str:
    """Return the event union of events/core/model.py as a table."""
    lines = [
        "# Events",
        "",
        "Generated from `events/core/model.py` by `make docs`. Each event carries `n`, the number of its record.",
    ]
    lines += ["", "| event | meaning | fields |", "|---|---|---|"]
    for kind in get_args(Event):
        said = " ".join((kind.__doc__ or "").split())
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind) if field.name != "n")
        lines.append(f"| `{kind.__name__}` | {said} | {fields or '-'} |")
    endings = ", ".join(f"`{ending}`" for ending in get_args(Ending))
    return "\n".join([*lines, "", "## Endings", "", f"Every stream has exactly one: {endings}.", ""])


DOCUMENTS = {
    "lifecycle.md": lifecycle,
    "events.md": events,
    "cli.md": cli,
    "configuration.md": configuration,
    "formats.md": formats,
}


def write() -> None:
    """Write every generated document."""
    for name, draw in DOCUMENTS.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    write()
