"""Cross requests in tests, and check what comes out against the SDKs' own types."""

from collections.abc import Mapping
from typing import Any, Final

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from wiretape.events.crossing.cross import Crossed, cross
from wiretape.events.crossing.request import Options
from wiretape.events.dialects import DIALECTS

NAMES: Final = ("chat", "responses", "messages")
PAIRS: Final = tuple((theirs, ours) for theirs in NAMES for ours in NAMES if theirs != ours)
OPTIONS: Final = Options()

#: By dialect, and by whether a stream is requested.
_TYPES: Final[Mapping[tuple[str, bool], TypeAdapter[Any]]] = {
    ("chat", False): TypeAdapter(CompletionCreateParamsNonStreaming),
    ("chat", True): TypeAdapter(CompletionCreateParamsStreaming),
    ("responses", False): TypeAdapter(ResponseCreateParamsNonStreaming),
    ("responses", True): TypeAdapter(ResponseCreateParamsStreaming),
    ("messages", False): TypeAdapter(MessageCreateParamsNonStreaming),
    ("messages", True): TypeAdapter(MessageCreateParamsStreaming),
}


def crossed(body: Any, theirs: str, ours: str, options: Options = OPTIONS) -> Crossed:
    """Return a client's request (`theirs`) as an upstream (`ours`) gets it, valid by the vendor's own types."""
    found = cross(body, theirs=DIALECTS[theirs], ours=DIALECTS[ours], options=options)
    _TYPES[ours, found.body.get("stream") is True].validate_python(found.body)
    return found


def chat(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return a chat completions request."""
    return {"model": "m", "messages": list(messages), **members}


def responses(*items: Any, **members: Any) -> dict[str, Any]:
    """Return a Responses request."""
    return {"model": "m", "input": list(items), **members}


def messages(*turns: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return a Messages request."""
    return {"model": "m", "max_tokens": 1000, "messages": list(turns), **members}


def user(content: Any = "Go on.") -> dict[str, Any]:
    """Return what a user says, in any dialect."""
    return {"role": "user", "content": content}


def assistant(content: Any, **members: Any) -> dict[str, Any]:
    """Return what the assistant said, in any dialect."""
    return {"role": "assistant", "content": content, **members}
