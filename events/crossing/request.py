"""One request of no dialect, as each dialect reads it and writes it, and what a route says about crossing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..core.json_text import as_object
from .given import Given
from .turns import Turn

__all__ = ["CUSTOM_SCHEMA", "SHARED", "Choice", "Format", "Options", "Request", "Tool"]

#: Members that chat and Responses share, name and meaning.
SHARED: Final = (
    *("metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("safety_identifier", "service_tier", "store", "user"),
)
#: What a custom tool takes where every tool takes an object.
CUSTOM_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the client runs."""

    name: str
    namespace: str = ""
    kind: str = "function"
    description: str = ""
    schema: Mapping[str, Any] | None = None
    strict: bool | None = None
    #: Syntax and definition of what a custom tool takes.
    grammar: tuple[str, str] | None = None
    #: To be loaded when a search found it.
    deferred: bool = False
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def described(self) -> str:
        """The description, with the grammar of what it takes where only text can give it."""
        if self.grammar is None:
            return self.description
        syntax, definition = self.grammar
        return f"{self.description}\n\nThe input must match this {syntax} grammar:\n{definition}".lstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Whether the model must, may or must not call a tool."""

    mode: Literal["auto", "none", "required", "tool"]
    #: Name and namespace of the tool that is forced.
    tool: tuple[str, str] = ("", "")
    #: The only tools that it may call.
    allowed: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The form of the answer: `json_object` or `json_schema`."""

    kind: str
    name: str = "response"
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    strict: bool | None = None
    description: str = ""

    @staticmethod
    def of(given: Given) -> "Format":
        """Return the JSON schema that chat and Responses describe alike."""
        schema, name = as_object(given.get("schema")), given.text("name")
        description, strict = given.word("description"), given.flag("strict")
        return Format(kind="json_schema", name=name, schema=schema, strict=strict, description=description)

    @property
    def members(self) -> dict[str, Any]:
        """The members that `of` reads."""
        more = {"description": self.description or None, "strict": self.strict}
        named = {"name": self.name, "schema": dict(self.schema)}
        return named | {member: value for member, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of any dialect."""

    model: str
    turns: tuple[Turn, ...]
    #: What is said before all turns, those of an earlier request among them.
    instructions: tuple[Turn, ...] = ()
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    #: Names of deferred tools that a search found.
    found: frozenset[str] = frozenset()
    #: The upstream was to search for tools itself, which only its own dialect's can.
    searches: bool = False
    choice: Choice | None = None
    parallel: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    format: Format | None = None
    #: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    effort: str | None = None
    #: How thinking is to be shown: a word of Responses' `reasoning.summary`.
    summary: str = ""
    verbosity: str = ""
    user: str = ""
    #: Those of SHARED.
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    previous_id: str = ""
    #: What the Responses object repeats of the request.
    echo: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lost: frozenset[str] = frozenset()

    @property
    def shared_out(self) -> dict[str, Any]:
        """The members of SHARED, with the end user of a dialect that names one elsewhere."""
        named = self.shared.keys() & {"user", "safety_identifier"}
        return {**self.shared, "user": self.user} if self.user and not named else dict(self.shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a route says about crossing."""

    #: The upstream takes system messages only before all others.
    system_first: bool = False
    #: Where the client gives none.
    max_tokens: int | None = None
    #: The most that the upstream takes.
    max_tokens_max: int | None = None
    #: The chat upstream understands `cache_control`.
    cache_control: bool = False
    chat_max_tokens_member: str = "max_completion_tokens"
    #: The upstream is OpenAI or Anthropic, which refuse members that others want.
    vendor: bool = False
    #: The turns of `previous_response_id`, its answer among them.
    previous: Sequence[Turn] | None = None
