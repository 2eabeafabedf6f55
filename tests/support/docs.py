"""Parts of documents that come from the code: `make docs` writes them, a test compares. The rest is written by hand."""

import dataclasses
import json
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import get_args

from typer.testing import CliRunner

from tests.bench import capacity
from wiretape import __version__
from wiretape.events.core import limits as core_limits
from wiretape.events.core.json_text import as_object, as_text
from wiretape.events.core.lifecycle import STATUS_ON_WIRE, TABLE
from wiretape.events.core.model import Event
from wiretape.events.crossing import losses
from wiretape.proxy import limits as proxy_limits
from wiretape.proxy.api.openapi import document
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.load import shown
from wiretape.proxy.config.model import FLAGS, ROUTE, SERVER, TARGET, Config, Route, Setting, Target
from wiretape.proxy.explain import CAUSES, ENDINGS
from wiretape.proxy.inspector.explanations import REPAIRS
from wiretape.replay.formats.exchange import LOSSES
from wiretape.replay.formats.table import EXPORTS, FORMATS

DOCS = Path(__file__).parents[2] / "docs"


def with_table(page: str, heading: str, *lines: str) -> str:
    """Return the page with these lines as the table of a section."""
    section = re.compile(rf"(^## {heading}\n(?:(?![#|]).*\n)*)(?:\|.*\n)+", re.MULTILINE)
    changed, count = section.subn(lambda found: found[1] + "".join(f"{line}\n" for line in lines), page)
    assert count == 1, f"no table in the section {heading}"
    return changed


def cli(page: str) -> str:
    """Return the page with the help of every verb after its introduction."""
    said = [f"## wiretape {verb}".rstrip() + f"\n\n```text\n{_help(verb)}\n```\n" for verb in ("", *_verbs())]
    return "\n".join([page.partition("\n## ")[0], *said])


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


#: The day of the version, for the manual page.
_RELEASED = "2026-11-20"
_ENTRY = re.compile(r"  (\S.*?)(?:  +(.*))?")


def man(_: str) -> str:
    """Return the manual page: the help of every verb, and the exit codes of docs/reference/commands.md."""
    exits = re.findall(r"^\| (\d+) \| (.+) \|$", read("reference/commands.md"), re.MULTILINE)
    lines = [f'.TH WIRETAPE 1 {_RELEASED} "wiretape {__version__}"', ".SH NAME"]
    lines += [r"wiretape \- the flight recorder in front of an LLM provider", ".SH SYNOPSIS"]
    lines += [".B wiretape", "[OPTIONS] COMMAND [ARGS]...", ".SH DESCRIPTION", *_troff(_help(""))]
    lines += [".SH COMMANDS"]
    for verb in _verbs():
        lines += [f'.SS "wiretape {verb}"', *_troff(_help(verb))]
    lines += [".SH EXIT STATUS"]
    for code, meaning in exits:
        lines += [".TP", f".B {code}", _escaped(meaning)]
    return "\n".join([*lines, ""])


def _troff(text: str) -> Iterator[str]:
    """Yield help as lines of a manual page: text is filled, lists become tagged paragraphs."""
    usage, *blocks = text.split("\n\n")
    for number, block in enumerate(blocks):
        lines = block.splitlines()
        if number:
            yield ".PP"
        if not lines[0].endswith(":") or lines[0].startswith(" "):
            yield from (_escaped(line.strip()) for line in lines)
            if not number:
                yield from (".PP", f".B {_escaped(' '.join(usage.split()))}")
            continue
        yield _escaped(lines[0])
        for line in lines[1:]:
            if entry := _ENTRY.fullmatch(line):
                yield from (".TP", f".B {_escaped(entry[1])}", *([_escaped(entry[2])] if entry[2] else []))
            else:
                yield _escaped(line.strip())


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def configuration(page: str) -> str:
    """Return the page with the tables of all settings."""
    page = with_table(page, "The server", *_settings(SERVER, Config(data=Path())))
    page = with_table(page, "Routes", *_settings(ROUTE, Route(name="", targets=())))
    return with_table(page, "Upstreams", *_settings(TARGET, Target(name="", url="")))


def _settings(settings: tuple[Setting, ...], defaults: object) -> Iterator[str]:
    yield from ("| wiretape.toml | environment | flag | default | allowed | purpose |", "|---|---|---|---|---|---|")
    for setting in settings:
        # The data folder is the platform's, and an upstream has no default.
        default = shown(attrgetter(setting.place)(defaults)) if setting.place not in ("", "data") else ""
        name = f"`{setting.name}`" + ("" if setting.shared else " *")
        flag = f"`{setting.flag}`" if setting.name in FLAGS else ""
        cells = (name, f"`{setting.environment}`", flag, f"`{default}`" if default else "")
        yield f"| {' | '.join((*cells, setting.kind.allowed, setting.reason))} |"


def formats(page: str) -> str:
    """Return the page with the tables of formats and losses."""
    lines = ["| format | what | import | export |", "|---|---|---|---|"]
    for name, each in FORMATS.items():
        lines.append(f"| `{name}` | {each.what} | yes | {EXPORTS[name].what if name in EXPORTS else '-'} |")
    page = with_table(page, "Formats", *lines)
    columns = [(name, each.always, each.sometimes) for name, each in FORMATS.items()]
    columns += [(f"to {name}", each.always, each.sometimes) for name, each in EXPORTS.items()]
    lines = [f"| lost | {' | '.join(name for name, _, _ in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for code, text in LOSSES.items():
        marks = ["always" if code in always else "some" if code in some else "" for _, always, some in columns]
        lines.append(f"| `{code}`: {text} | {' | '.join(marks)} |")
    return with_table(page, "What is lost", *lines)


def lifecycle(page: str) -> str:
    """Return the page with the state table of events/core/lifecycle.py."""
    lines = ["| state | trigger | next state | status on the wire |", "|---|---|---|---|"]
    for state, moves in TABLE.items():
        status = f"`{STATUS_ON_WIRE[state]}`" if state in STATUS_ON_WIRE else "none"
        lines += [f"| {state.value} | {trigger.value} | {to.value} | {status} |" for trigger, to in moves.items()]
        lines += [] if moves else [f"| {state.value} | nothing | - | {status} |"]
    return with_table(page, "States", *lines)


def endings(page: str) -> str:
    """Return the page with the tables of endings and causes from proxy/explain.py."""
    lines = [f"| `{ending}` | {each.sentence} | {each.what_the_client_got} |" for ending, each in ENDINGS.items()]
    head = ("| ending | what happened | what the client of a running stream got |", "|---|---|---|")
    page = with_table(page, "Endings", *head, *lines)
    causes = [f"| `{cause}` | {text[0].upper()}{text[1:]}. |" for cause, text in CAUSES.items()]
    return with_table(page, "Causes", "| cause | meaning |", "|---|---|", *causes)


UNITS = ("s", "times", "characters", "characters at least", "JSON values")
#: What a setting limits, and what happens beyond it.
SETTABLE = {
    "streams_max": ("streams at once", "503 with `Retry-After`"),
    "body_bytes_max": ("a request body", "413"),
    "memory_max_bytes": ("memory of the process", "503; a stream that needs more ends as `limit`"),
    "connect_timeout_s": ("time to connect, TLS included", "the attempt fails"),
    "write_timeout_s": ("sending a request without progress", "the attempt fails"),
    "first_byte_s": ("time to the first frame", "the attempt fails, or `stalled`"),
    "idle_s": ("silence inside a stream", "`stalled`"),
    "attempts": ("attempts", "an error"),
    "runs_max": ("active runs of one caller", "429"),
    "keep_days": ("age of a tape, in days", "the tape is deleted"),
    "keep_bytes": ("all tapes", "the oldest are deleted"),
}
#: What a fixed limit limits, and what happens beyond it.
FIXED = (
    (core_limits.EVENT_BYTES_MAX, "bytes", "one event of a stream", "`limit`"),
    (core_limits.JSON_VALUES_MAX, "JSON values", "one request or response", "413; a response is passed on unread"),
    (core_limits.KEPT_CHARS_MAX, "characters", "all tool calls of a stream", "`limit`"),
    (core_limits.HELD_BYTES_MAX, "bytes", "held tool calls of a stream", "`limit`"),
    (core_limits.COMPOSED_CHARS_MAX, "characters", "text of a crossed response", "`limit`"),
    (core_limits.BODY_BYTES_MAX, "bytes", "a whole response that is read", "passed on unread"),
    (core_limits.PREVIEW_BYTES_MAX, "bytes", "preview of a tool result", "shortened; the whole result is on the tape"),
    (proxy_limits.STREAM_BYTES_MAX, "bytes", "one chat stream", "`limit`"),
    (proxy_limits.HEAD_BYTES_MAX, "bytes", "the head of a request or response", "431, or `protocol`"),
    (proxy_limits.HEADERS_MAX, "", "headers of a message", "431, or `protocol`"),
    (proxy_limits.INFLATE_RATIO_MAX, "times", "a compressed body", "413, or `limit`"),
    (proxy_limits.RETRY_AFTER_MAX_S, "s", "`Retry-After` of an upstream", "passed on to the client"),
    (proxy_limits.WINDOW_BYTES_MAX, "bytes", "frames that wait for a slow client", "served from the tape"),
    (proxy_limits.ABANDONED_AFTER_S, "s", "a tool call without a result", "`abandoned`"),
    (proxy_limits.KEY_CHARS_MIN, "characters at least", "a Wiretape key", "Wiretape does not start"),
)


def limits(page: str) -> str:
    """Return the page with the tables of limits that users meet."""
    lines = ["| what | limit | setting | beyond it |", "|---|---|---|---|"]
    defaults: dict[str, tuple[Config | Route, Setting]] = {each.name: (Config(data=Path()), each) for each in SERVER}
    defaults |= {each.name: (Route(name="", targets=()), each) for each in ROUTE}
    for name, (what, beyond) in SETTABLE.items():
        holder, setting = defaults[name]
        value, unit = attrgetter(setting.place)(holder), name.rpartition("_")[2]
        lines.append(f"| {what} | {_amount(value, 'bytes' if 'bytes' in name else unit)} | `{name}` | {beyond} |")
    page = with_table(page, "Limits that you can set", *lines)
    lines = [f"| {what} | {_amount(value, unit)} | {beyond} |" for value, unit, what, beyond in FIXED]
    return with_table(page, "Fixed limits", "| what | limit | beyond it |", "|---|---|---|", *lines)


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "bytes":
        power = max(each for each in (0, 10, 20, 30) if value >= 2**each)
        return f"{value / 2**power:g} {('bytes', 'KiB', 'MiB', 'GiB')[power // 10]}"
    return f"{value:,.0f} {unit if unit in UNITS else ''}".strip()


def events(_: str) -> str:
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
    return "\n".join([*lines, ""])


def crossing(page: str) -> str:
    """Return the page with the tables of events/crossing/losses.py."""
    lost, changed, answers = losses.LOST.items(), losses.CHANGED.items(), losses.STREAM_LOST.items()
    members = [f"| `{member}` | lost: `{name}` |" for member, (name, *_) in losses.LEFT_OUT.items()]
    members += [f"| `{member}` | refused: {why} |" for member, (why, *_) in losses.REFUSED.items()]
    tables = {
        "What a request can lose": ["| name | what is lost |", *(f"| `{name}` | {text} |" for name, text in lost)],
        "What arrives in another form": [
            "| name | what changes |",
            *(f"| `{name}` | {text} |" for name, text in changed),
        ],
        "Members that are left out or refused": ["| member | |", *members],
        "What an answer can lose": [
            "| ledger | what is lost |",
            *(f"| `lost_{name}` | {text} |" for name, text in answers),
        ],
    }
    for heading, (head, *lines) in tables.items():
        page = with_table(page, heading, head, "|---|---|", *lines)
    return page


def repairs(page: str) -> str:
    """Return the page with the sentence of each repair."""
    row = re.compile(r"^\| `(\w+)` \| .*$", re.MULTILINE)
    assert {found[1] for found in row.finditer(page)} == REPAIRS.keys(), "the page and repairs.json name other repairs"
    return row.sub(lambda found: f"| `{found[1]}` | {REPAIRS[found[1]]} |", page)


def openapi(_: str) -> str:
    """Return the OpenAPI document of Wiretape's own endpoints."""
    return json.dumps(document(), indent=1) + "\n"


def http_api(page: str) -> str:
    """Return the page with the table of all endpoints, from the OpenAPI document."""
    lines = ["| endpoint | what it does |", "|---|---|"]
    for path, methods in as_object(document()["paths"]).items():
        for method, operation in as_object(methods).items():
            if about := as_text(as_object(operation).get("summary")):
                lines.append(f"| `{method.upper()} {path}` | {about.rstrip('.')} |")
    return with_table(page, "All endpoints", *lines)


#: From the page as it is to the page as it should be.
def how_large(_: str) -> str:
    """Return the page on capacity, which is computed as a whole."""
    return capacity.page()


DOCUMENTS = {
    "concepts/tool-calls.md": lifecycle,
    "reference/events.md": events,
    "reference/commands.md": cli,
    "../deploy/man/wiretape.1": man,
    "reference/configuration.md": configuration,
    "reference/formats.md": formats,
    "reference/crossing.md": crossing,
    "reference/endings.md": endings,
    "reference/http-api.md": http_api,
    "reference/limits.md": limits,
    "reference/repairs.md": repairs,
    "reference/openapi.json": openapi,
    "internals/capacity.md": how_large,
}


def read(name: str) -> str:
    """Return a document as it is."""
    return (DOCS / name).read_text(encoding="utf-8")


def write() -> None:
    """Write every generated part."""
    for name, draw in DOCUMENTS.items():
        (DOCS / name).write_text(draw(read(name)), encoding="utf-8")


if __name__ == "__main__":
    write()
