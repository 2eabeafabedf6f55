"""Writes docs/internals/real-peers.md: which client got what from which upstream, directly and through Wiretape."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.markdown import table

from .clients import CLIENTS, SCENARIOS, version_table
from .judge import Outcome
from .servers import UPSTREAMS

PLACE: Final = Path(__file__).parents[2] / "docs/internals/real-peers.md"

_TEXT: Final = """\
# Real peers

Written by `make test-real`. Every client asks every upstream twice, directly and through
`wiretape serve --upstream URL` with its defaults, and what it holds at the end is compared: text, calls, what its tool
was run with, finish, token counts, or the error that it raised. What differs between any two requests (ids, ports) is
left out.

- **same**: through Wiretape as direct. What came of a stream is also what our folds hold of its tape.
- **repaired**: not as direct, equal to our folds, and the tape names why: listed below.
- **differs**: neither; a defect. This run: {differs}.
- -: not asked: llama-cpp-python calls a tool only when the request names it, which `llm` and opencode cannot; opencode
  asks again for ever where an error stays.

## Scenarios

{scenarios}
## Results

{results}
{counts}

## What was repaired

{repaired}
{defects}## Versions

{versions}
"""


class Cell(NamedTuple):
    """One scenario of one client on one upstream; no outcome where it cannot be asked."""

    upstream: str
    client: str
    scenario: str
    outcome: Outcome | None


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def summary(cells: Sequence[Cell], due: int) -> str:
    """Return one line; `due` is the number of cells with unlimited time."""
    counts = Counter(cell.outcome.verdict for cell in cells if cell.outcome is not None)
    told = f"real peers: {counts['same']} same, {counts['repaired']} repaired, {counts['differs']} differ"
    return told if len(cells) == due else f"{told}; {due - len(cells)} not asked for want of time"


def document(cells: Sequence[Cell]) -> str:
    """Return the whole document."""
    return _TEXT.format(
        differs=sum(cell.outcome is not None and cell.outcome.verdict == "differs" for cell in cells),
        scenarios=table(["scenario", "asks for"], [(f"`{each.name}`", each.says) for each in SCENARIOS.values()]),
        results="\n".join(_results(upstream.name, upstream.scenarios, cells) for upstream in UPSTREAMS),
        counts=summary(cells, len(cells)).capitalize() + ".",
        repaired=_listed(cells, "repaired") or "Nothing.\n",
        defects=f"## What differs\n\n{listed}\n" if (listed := _listed(cells, "differs")) else "",
        versions=version_table(
            ["@copilotkit/aimock (npm)", "litellm", "llama-cpp-python", *(client.package for client in CLIENTS)]
        ),
    )


def _results(upstream: str, scenarios: Sequence[str], cells: Sequence[Cell]) -> str:
    found = {(cell.client, cell.scenario): cell.outcome for cell in cells if cell.upstream == upstream}
    rows = [
        [client.name, *(_verdict(found.get((client.name, scenario))) for scenario in scenarios)] for client in CLIENTS
    ]
    return f"### {upstream}\n\n" + table(["client", *(f"`{name}`" for name in scenarios)], rows)


def _verdict(outcome: Outcome | None) -> str:
    return "-" if outcome is None else outcome.verdict if outcome.verdict == "same" else f"**{outcome.verdict}**"


def _listed(cells: Sequence[Cell], verdict: str) -> str:
    rows = [
        [
            cell.upstream,
            f"`{cell.scenario}`",
            cell.client,
            said(outcome.direct),
            said(outcome.through),
            ", ".join(outcome.explains),
        ]
        for cell in cells
        if (outcome := cell.outcome) is not None and outcome.verdict == verdict
    ]
    if not rows:
        return ""
    return table(["upstream", "scenario", "client", "direct", "through Wiretape", "the tape says"], rows)


def said(result: dict[str, Any]) -> str:
    """Return the result of a client in one line."""
    parts = [each for turn in result["turns"] for each in _turn(turn)]
    if (error := result["error"]) is not None:
        status = f" {error['status']}" if error["status"] else ""
        parts.append(f"raises {error['class']}{status}: {_short(error['message'] or '', 160)}")
    return "; ".join(parts or ["nothing, and no error"]).replace("|", "\\|").replace("\n", " ")


def _turn(turn: dict[str, Any]) -> Iterable[str]:
    if turn["text"]:
        yield f"text “{_short(turn['text'], 24)}”"
    for one, name, arguments in turn["calls"]:
        doubled = " under an id that is repeated in itself" if one == "twice" else "" if one else " without an id"
        yield f"call {_short(name, 24)}({_short(str(arguments), 24)}){doubled}"
    if turn["finish"]:
        yield f"finish {turn['finish']}"


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size] + "…"
