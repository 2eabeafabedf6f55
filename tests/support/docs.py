"""Parts of documents that come from the code: `make docs` writes them, a test compares. The rest is written by hand."""

import dataclasses
import json
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import get_args

from typer.testing import CliRunner

from wiretape.events.core.lifecycle import STATUS_ON_WIRE, TABLE, TERMINAL, State
from wiretape.events.core.model import Ending, Event
from wiretape.events.crossing import losses
from wiretape.proxy.api.openapi import document
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.load import shown
from wiretape.proxy.config.model import FLAGS, ROUTE, SERVER, TARGET, Config, Route, Setting, Target
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


def lifecycle(_: str) -> str:
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
    endings = ", ".join(f"`{ending}`" for ending in get_args(Ending))
    return "\n".join([*lines, "", "## Endings", "", f"Every stream has exactly one: {endings}.", ""])


def crossing(_: str) -> str:
    """Return what crosses between dialects, from events/crossing/losses.py."""
    lines = [
        "# What crosses and what does not",
        "",
        "Generated from `events/crossing/losses.py` by `make docs`.",
        "",
        "Where client and upstream speak different dialects, Wiretape writes the request in the upstream's and the",
        "answer in the client's. What a request loses is named in the response header `X-Wiretape-Lost` and in the",
        "`attempt` record of the tape, what an answer loses in its ledger.",
    ]
    lines += ["", "## Requests", "", "| what | how it crosses |", "|---|---|"]
    lines += [f"| {what} | {rule} |" for what, rule in losses.CROSSES.items()]
    lines += ["", "## What a request can lose", "", "| name | what is lost |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in losses.LOST.items()]
    lines += ["", "These names say that something arrives in another form:", "", "| name | what changes |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in losses.CHANGED.items()]
    lines += ["", "## Members that are left out or refused", "", "| member | |", "|---|---|"]
    lines += [f"| `{member}` | lost: `{name}` |" for member, (name, *_) in losses.LEFT_OUT.items()]
    lines += [f"| `{member}` | refused: {why} |" for member, (why, *_) in losses.REFUSED.items()]
    lines += ["", "A member, item, block or tool that is not known here is refused with HTTP 400 that names it."]
    lines += ["", "## What an answer can lose", "", "| ledger | what is lost |", "|---|---|"]
    lines += [f"| `lost_{name}` | {text} |" for name, text in losses.STREAM_LOST.items()]
    return "\n".join([*lines, ""])


def openapi(_: str) -> str:
    """Return the OpenAPI document of Wiretape's own endpoints."""
    return json.dumps(document(), indent=1) + "\n"


#: From the page as it is to the page as it should be.
DOCUMENTS = {
    "lifecycle.md": lifecycle,
    "events.md": events,
    "cli.md": cli,
    "configuration.md": configuration,
    "formats.md": formats,
    "reference/crossing.md": crossing,
    "reference/openapi.json": openapi,
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
