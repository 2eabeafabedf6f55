"""The clients of the matrices: those of the real peers, and those that need environments of their own."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..clients import CLIENTS, Client
from ..places import NODE, NODE_MODULES, OPENCODE, PYTHONS, ROOT
from .script import CUTS

__all__ = ["PEERS", "READER", "Peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A client, and how to run it many times."""

    client: Client
    #: The tool that its model calls; some have only their own.
    tool: str = "get_weather"
    #: The number of parallel processes.
    lanes: int = 1
    cuts: tuple[str, ...] = tuple(CUTS)
    #: Whether it restarts for each question.
    program: bool = False
    #: The timeout that it is given, if it can be given one.
    timeout_s: float = 8
    #: Directly, it is ended so long after its first request.
    patience_s: float = 12
    #: Installed and started in seconds.
    quick: bool = True

    @property
    def name(self) -> str:
        """For the table."""
        return self.client.name

    @property
    def lacks(self) -> list[str]:
        """Return the parts that are not installed."""
        needed = [each for each in self.client.command[:1] if isinstance(each, Path)]
        needed += [OPENCODE] * (self.tool == "bash") + [PYTHONS["hermes"]] * (self.tool == "terminal") + [NODE_MODULES]
        return [str(each.relative_to(ROOT)) for each in needed if not each.exists()]


def _python(environment: str, driver: str) -> tuple[str | Path, ...]:
    return (PYTHONS[environment], "-m", f"tests.real.drivers.{driver}")


_KNOWN: Final = {client.name: client for client in CLIENTS}
_NODE_VERCEL: Final = ("node", NODE / "vercel.mjs")

#: Programs restart for each question, so they run fewer cells.
_PROGRAM_CUTS: Final = ("bare", "member")
#: With their start, on a busy machine.
_PROGRAM_S: Final = 150.0

PEERS: Final = (
    Peer(client=_KNOWN["openai Python, loop"]),
    Peer(client=_KNOWN["openai Python, helper"]),
    Peer(client=_KNOWN["openai Node, loop"]),
    Peer(client=_KNOWN["openai Node, helper"]),
    Peer(client=_KNOWN["LangChain Python"]),
    Peer(client=_KNOWN["LangChain JavaScript"]),
    Peer(
        client=Client(
            name="Vercel ai, @ai-sdk/openai", package="@ai-sdk/openai (npm)", command=_NODE_VERCEL, mode="openai"
        ),
        timeout_s=30,
    ),
    Peer(
        client=Client(
            name="Vercel ai, @ai-sdk/openai-compatible",
            package="@ai-sdk/openai-compatible (npm)",
            command=_NODE_VERCEL,
        ),
        timeout_s=30,
    ),
    Peer(client=Client(name="LiteLLM SDK", package="litellm", command=_python("litellm", "litellm_sdk")), quick=False),
    Peer(
        client=Client(name="pydantic-ai", package="pydantic-ai-slim", command=_python("agents", "pydantic_ai_agent")),
        quick=False,
    ),
    Peer(
        client=Client(name="openai-agents", package="openai-agents", command=_python("agents", "openai_agents")),
        quick=False,
    ),
    Peer(
        client=Client(
            name="llama-index",
            package="llama-index-llms-openai-like",
            command=_python("llama_index", "llama_index_like"),
        ),
        quick=False,
    ),
    Peer(client=_KNOWN["llm"], lanes=2, cuts=_PROGRAM_CUTS, program=True, timeout_s=_PROGRAM_S, quick=False),
    Peer(
        client=_KNOWN["opencode"],
        tool="bash",
        lanes=2,
        cuts=_PROGRAM_CUTS,
        program=True,
        timeout_s=_PROGRAM_S,
        quick=False,
    ),
    Peer(
        client=Client(
            name="hermes-agent",
            package="hermes-agent",
            command=(sys.executable, "-m", "tests.real.drivers.hermes_cli"),
        ),
        tool="terminal",
        lanes=2,
        cuts=_PROGRAM_CUTS,
        program=True,
        timeout_s=_PROGRAM_S,
        quick=False,
    ),
)

#: No SDK: what it sees of the lifecycle is what is on the wire.
READER: Final = Peer(
    client=Client(
        name="the hermes-aware reader", package="", command=(sys.executable, "-m", "tests.real.drivers.hermes_reader")
    )
)
