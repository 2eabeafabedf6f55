"""What the user of a Python client holds after a stream that is read out of memory: `... python_readers READER`.

One JSON line in, {body: base64, tools: [name]}, one line out. It runs in the environment of the clients, without
Wiretape; tests/conformance/readers.py compares.
"""

import base64
import importlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

_URL: Final = "http://localhost/v1"
_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def _http(body: bytes) -> Any:
    """Return a client of the HTTP library that the SDK is built on, which gives this answer to every request."""
    try:
        httpx = importlib.import_module("httpx2")
    except ImportError:
        httpx = importlib.import_module("httpx")
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    def handle(_: Any) -> Any:
        return answer

    return httpx.Client(transport=httpx.MockTransport(handle))


def _openai(body: bytes, _: list[str], now: dict[str, Any]) -> None:
    openai = importlib.import_module("openai")
    with openai.OpenAI(api_key="x", base_url=_URL, http_client=_http(body), max_retries=0) as client:
        asked: dict[str, Any] = {"model": "m", "messages": [], "stream_options": {"include_usage": True}}
        with client.chat.completions.stream(**asked) as stream:
            try:
                final = stream.get_final_completion()
            except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                final = stream.current_completion_snapshot  # it refuses a whole answer with this finish
    choice = next((choice for choice in final.choices if choice.index == 0), None)
    if choice is not None:
        now["text"] = choice.message.content or ""
        now["reasoning"] = getattr(choice.message, "reasoning_content", None) or ""
        now["finish"] = choice.finish_reason or ""
        calls: list[Any] = choice.message.tool_calls or []
        for call in calls:
            said: Any = call.function
            try:
                now["calls"].append([call.id, said.name, json.loads(said.arguments or "{}")])
            except ValueError:
                now["invalid"].append([call.id, said.name, said.arguments])
    usage = final.usage
    now["usage"] = usage and [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def _langchain(body: bytes, tools: list[str], now: dict[str, Any]) -> None:
    langchain = importlib.import_module("langchain_openai")
    model = langchain.ChatOpenAI(
        model="m", api_key="x", base_url=_URL, stream_usage=True, max_retries=0, http_client=_http(body)
    )
    offered: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": name, "parameters": _SCHEMA}} for name in tools
    ]
    whole: Any = None
    for chunk in model.bind_tools(offered).stream("hi") if offered else model.stream("hi"):
        whole = chunk if whole is None else whole + chunk
    if whole is None:
        return
    now["text"] = whole.content
    now["calls"] = [[call["id"], call["name"], call["args"]] for call in whole.tool_calls]
    now["invalid"] = [[call["id"], call["name"], call["args"]] for call in whole.invalid_tool_calls]
    now["finish"] = whole.response_metadata.get("finish_reason", "")
    usage = whole.usage_metadata
    now["usage"] = usage and [usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]]


READERS: Final[dict[str, Callable[[bytes, list[str], dict[str, Any]], None]]] = {
    "openai_python": _openai,
    "langchain_python": _langchain,
}


def main() -> None:
    """Answer each line."""
    read = READERS[sys.argv[1]]
    warnings.simplefilter("ignore")  # pydantic's, over content that is not text
    for line in sys.stdin:
        asked = json.loads(line)
        now: dict[str, Any] = {"text": "", "reasoning": None, "calls": [], "invalid": [], "finish": "", "usage": None}
        error = ""
        try:
            read(base64.b64decode(asked["body"]), asked["tools"], now)
        except Exception as failure:  # noqa: BLE001 - the exception is the result
            error = f"{type(failure).__name__}: {failure}"[:300]
        print(json.dumps(now | {"error": error}), flush=True)


if __name__ == "__main__":
    main()
