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

Written by `make test-real`. Real clients, each with a tool that logs its arguments, use a scripted provider over
loopback: directly, and through one `wiretape serve` with a route for each way to end a broken stream (`on_partial`, and
`tools = held`; `warn` always holds; `idle_s` is 2). Each client retries and runs tools by its own defaults; the loops
around the bare SDKs run every call they find.

A cell shows what the client's user sees: **raises**, a **text**, or a **finish**; ⚠ where Wiretape's warning is
visible; (2) where the client sent two requests, (1→3) where Wiretape made three attempts of one request. **Bold**
marks a fault: a tool that **ran** (no call here was ever complete), a **success** (no error, no warning, and the finish
`stop` or `tool_calls` or none that the client reports), more than {most} requests for one user turn, or,
through Wiretape, no end. A missing finish (openai-agents, llm) counts as a success too, unless the
client received `length`.

**no end**: it waited or retried until it was stopped; clients with a timeout setting had 8 s (Vercel `ai`, where it
covers all steps, 30 s). **raises**: also where a program reports a failure in words.

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
