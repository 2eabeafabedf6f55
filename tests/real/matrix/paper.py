"""Writes docs/internals/compatibility.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..clients import versions
from ..report import table
from . import cutting, living
from .cells import Found
from .peers import PEERS
from .script import CUTS
from .verdict import REQUESTS_MAX

__all__ = ["PLACE", "document"]

PLACE: Final = Path(__file__).parents[3] / "docs/internals/compatibility.md"

_TEXT: Final = """\
# Compatibility

Written by `make test-real`; nothing here is typed by hand. Real clients, each with a tool that writes down the
arguments it is run with, ask a scripted provider over loopback: directly, and through one `wiretape serve` with a route
for each way of telling that a stream broke (`on_partial`, and `tools = held`; `warn` always holds; `idle_s` is 2). Each
client asks again as often as it does by itself, and runs its tools as it does by itself; the loops around the bare SDKs
run whatever call they find.

A cell says what the client's user is told in the end: **raises**, a **text**, or a **finish**; ⚠ where Wiretape's
warning can be read; (2) where the client asked twice, (1→3) where Wiretape made three attempts of one request. In
**bold** what must not be: a tool that **ran** (no call here ever came whole), a **success** (no error, no warning, and
the finish `stop` or `tool_calls` or none that the client tells), more than {most} requests for one user turn, or,
through Wiretape, no end. Where a client tells no finish (openai-agents, llm) it counts as a success, too, unless what
it got was `length`.

**no end**: it waited or asked again until it was stopped; clients that let one set it had a timeout of 8 s (Vercel
`ai`, where it is one for all steps together, of 30 s). **raises**: also where a program says in words that it failed.

Each stream is cut in three places (two for the clients that are programs); where they differ, the cell says so:

{cuts}

{cutting}
{living}
## Versions

{versions}"""


def document(cut: Sequence[Found], whole: Sequence[Found]) -> str:
    """The whole text."""
    known = versions()
    packages = dict.fromkeys(peer.client.package for peer in PEERS)
    return _TEXT.format(
        most=REQUESTS_MAX,
        cuts="\n".join(f"- {name}: {says}" for name, says in CUTS.items()),
        cutting=cutting.document(cut),
        living=living.document(whole),
        versions=table(["package", "version"], [(name, known[name]) for name in packages]),
    )
