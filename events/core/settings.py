"""What emission depends on besides the upstream's bytes, read from the records that hold it.

`open` holds the settings, `request` the facts of the request. The proxy decided and recorded both before the first
frame, so that emission is a function of the tape. Junk in a record falls back to the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from .json_text import as_list, as_object

__all__ = ["DIALECTS", "Facts", "OnPartial", "Profile", "Reasoning", "Settings", "Tools"]

#: The dialects that are read and written.
DIALECTS: Final = ("chat", "responses", "messages")

Profile = Literal["strict", "transparent"]
OnPartial = Literal["error", "warn", "both"]
Tools = Literal["live", "held"]
Reasoning = Literal["reasoning_content", "reasoning", "as_is"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one stream is to be emitted."""

    profile: Profile = "strict"
    on_partial: OnPartial = "error"
    tools: Tools = "live"
    tool_events: bool = True
    reasoning: Reasoning = "reasoning_content"
    #: Content deltas repeat all text so far (DashScope, Q61); only configuration can distinguish that from chance.
    cumulative: bool = False
    #: A `<think>` block at the head of the content becomes reasoning (Q78).
    think: bool = False
    #: Turn a whole answer into a stream where one was requested (Q96); otherwise refuse it.
    synthesise: bool = True
    #: Lifecycle frames show a picture of their tool.
    emoji: bool = False
    #: The upstream is declared to be hermes-agent: its reports about its tools and its ending are trusted.
    hermes: bool = False

    @property
    def held(self) -> bool:
        """Tool deltas wait for the finish of their choice; always so where a cut call must never have been shown."""
        return self.tools == "held" or self.on_partial == "warn"

    @staticmethod
    def of(keys: Mapping[str, Any], profile: Profile | None = None) -> "Settings":
        """Return the settings in the keys of an `open` record; a reader may ask for another profile."""
        settings: dict[str, Any] = {**as_object(keys.get("settings")), "profile": profile or keys.get("profile")}
        known = {
            key: value
            for key, value in settings.items()
            if (type(value) is bool if key in _FLAGS else value in get_args(_WORDS.get(key)))
        }
        return Settings(**known)


_WORDS: Final[Mapping[str, Any]] = MappingProxyType(
    {"profile": Profile, "on_partial": OnPartial, "tools": Tools, "reasoning": Reasoning}
)
_FLAGS: Final = frozenset(one.name for one in fields(Settings) if one.name not in _WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What emission must know of the request, also where only the hash of its body is kept."""

    #: The client asked for a stream; a plain answer passes as it came.
    stream: bool = True
    #: It asked for a usage chunk.
    usage: bool = False
    model: str = ""
    choices: int | None = None
    tools: frozenset[str] = field(default_factory=frozenset[str])

    def internal(self, tool: str) -> bool:
        """Return whether a tool is the upstream's own housekeeping: `_name`, unless the request declares it."""
        return tool.startswith("_") and tool not in self.tools

    def to_keys(self) -> dict[str, Any]:
        """Return the `facts` of a `request` record."""
        facts = {"stream": self.stream, "usage": self.usage, "model": self.model, "n": self.choices}
        return {**facts, "tools": sorted(self.tools)}

    @staticmethod
    def of(keys: Mapping[str, Any]) -> "Facts":
        """Return the facts in the keys of a `request` record."""
        facts = as_object(keys.get("facts"))
        model, choices = facts.get("model"), facts.get("n")
        return Facts(
            stream=facts.get("stream") is not False,
            usage=facts.get("usage") is True,
            model=model if isinstance(model, str) else "",
            choices=choices if type(choices) is int else None,
            tools=frozenset(name for name in as_list(facts.get("tools")) if isinstance(name, str)),
        )
