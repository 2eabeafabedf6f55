"""Writes docs/internals/hermes.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..clients import CLIENTS, versions
from ..report import table
from .judge import Found, said
from .model import SCENARIOS

__all__ = ["PLACE", "document"]

PLACE: Final = Path(__file__).parents[3] / "docs/internals/hermes.md"

_TEXT: Final = """\
# hermes-agent as an upstream of Wiretape

Written by `make test-real`. Real clients use a real hermes-agent with a scripted model, directly and through
`wiretape serve` on a route with `hermes = true`
([what that means](decisions/2026-11-18-hermes-upstream.md)). It runs its tool on its own side. **ok**: the client has
the whole text and the finish, or, where the agent failed, the text before and an error that says why.
(openai-python's helper raises on every `length`, a plain model's too; that is ok.)

Through Wiretape {right} of {all} are ok, directly {direct}. Also, a reader of lifecycle frames gets exactly
one `running` and one `completed` with one id for the tool, the session headers pass both ways, and `wiretape
doctor` knows the agent by its capabilities: {wrong}.

| scenario | the agent |
| --- | --- |
{scenarios}
{results}
## Versions

{versions}"""


def document(found: Sequence[Found], wrong: Sequence[str]) -> str:
    """The whole text."""
    known = versions()
    packages = dict.fromkeys(["hermes-agent", *(client.package for client in CLIENTS)])
    return _TEXT.format(
        right=sum(said(each)[1] == "ok" for each in found),
        all=len(found),
        direct=sum(said(each)[0] == "ok" for each in found),
        wrong="; ".join(wrong) or "all as it should be",
        scenarios="".join(f"| `{each.name}` | {each.says} |\n" for each in SCENARIOS),
        results="\n".join(_results(name, found) for name in ("directly", "through Wiretape")),
        versions=table(["package", "version"], [(name, known[name]) for name in packages]),
    )


def _results(way: str, found: Sequence[Found]) -> str:
    cells = {(each.client, each.scenario.name): said(each)[way != "directly"] for each in found}
    rows = [
        [client.name, *(cells[client.name, scenario.name].replace("|", "\\|") for scenario in SCENARIOS)]
        for client in CLIENTS
    ]
    head = ["client", *(f"`{scenario.name}`" for scenario in SCENARIOS)]
    return f"## {way[0].upper()}{way[1:]}\n\n{table(head, rows)}"
