"""What clients send for a run: checks that name the wrong member, and the chat requests that are made from it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..core.errors import WiretapeError
from ..core.json_text import as_list, as_object, dumps, is_list, is_object, parse
from ..core.lifecycle import State
from ..core.limits import SESSION_CHARS_MAX
from ..folds.summary import StreamSummary

__all__ = [
    "RunRequestError",
    "chat_request",
    "check_outputs",
    "check_start",
    "history_of",
    "next_request",
    "start_request",
]

_Object = dict[str, Any]

#: Members of a chat request that Wiretape decides on.
_NOT_ALLOWED: Final = ("messages", "stream", "stream_options", "n")


class RunRequestError(WiretapeError):
    """A request that is refused: its wrong member, and whether that is wrong by itself or in the state of its run."""

    def __init__(self, param: str | None, message: str, code: str = "invalid_parameter") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_session(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= SESSION_CHARS_MAX and value.isprintable()


def _are_messages(value: Any) -> bool:
    return is_list(value) and all(isinstance(as_object(message).get("role"), str) for message in value)


def _is_input(value: Any) -> bool:
    return bool(value) and (_is_text(value) or _are_messages(value))


#: The members that are not passed on as they are, what they may be, and its check.
_MEMBERS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = MappingProxyType(
    {
        "input": ("a text or a list of chat messages, and not empty", _is_input),
        "instructions": ("a text", _is_text),
        "conversation_history": ("a list of chat messages", _are_messages),
        "tools": ("a list of tools", is_list),
        "previous_response_id": ("the id of a run", _is_text),
        "session_id": (f"a text of 1 to {SESSION_CHARS_MAX} printable characters", _is_session),
        "metadata": ("an object", is_object),
        "stream_tool_arguments": ("true or false", lambda value: isinstance(value, bool)),
    }
)


def check_start(request: bytes, *, own: bool = True) -> _Object:
    """Return the members of a request for a run that are not null; raise `RunRequestError` for the first wrong one.

    A run that is not our `own` has the tools of its upstream.
    """
    body = as_object(parse(request))
    for name in _NOT_ALLOWED:
        if name in body:
            raise RunRequestError(name, f"{name} is not allowed for a run. Wiretape sets it.")
    given = {name: value for name, value in body.items() if value is not None}
    if "input" not in given:
        raise RunRequestError("input", "input is missing.")
    if not isinstance(given.get("model", ""), str):
        raise RunRequestError("model", "model must be a text.")
    for name, (allowed, fits) in _MEMBERS.items():
        if name in given and not fits(given[name]):
            raise RunRequestError(name, f"{name} must be {allowed}.")
    if given.get("tools") and not own:
        raise RunRequestError("tools", "tools is not allowed here: the upstream runs tools of its own (runs = relay).")
    given["tools"] = [_tool(at, tool) for at, tool in enumerate(given.get("tools", ()))]
    return given


def _tool(at: int, tool: Any) -> _Object:
    """Return a tool in the form of a chat request; the Responses API has the members of the function flat."""
    kind, given = as_object(tool).get("type"), as_object(tool)
    nested = isinstance(kind, str) and is_object(given.get(kind))
    if nested and (kind != "function" or isinstance(as_object(given[kind]).get("name"), str)):
        return given
    if nested or kind != "function" or not isinstance(given.get("name"), str):
        raise RunRequestError(f"tools[{at}]", f"tools[{at}] must be a function with a name.")
    return {"type": kind, "function": {name: value for name, value in given.items() if name != "type"}}


def _asked(given: Mapping[str, Any]) -> list[Any]:
    """Return the messages of `input`."""
    said = given.get("input")
    return [{"role": "user", "content": said}] if isinstance(said, str) else as_list(said)


def chat_request(given: Mapping[str, Any], history: Sequence[Any]) -> bytes:
    """Return the chat request of a run's first turn."""
    messages: list[Any] = [{"role": "system", "content": given["instructions"]}] if given.get("instructions") else []
    messages += [*history, *_asked(given)]
    request = {name: value for name, value in given.items() if name not in _MEMBERS}
    request |= {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    return dumps(request | ({"tools": given["tools"]} if given["tools"] else {}))


def check_outputs(request: bytes, pending: Mapping[str, Any], status: str) -> list[_Object]:
    """Return the outputs of all pending calls, in the order of the calls; raise `RunRequestError` for others."""
    given: dict[str, _Object] = {}
    outputs = as_object(parse(request)).get("tool_outputs")
    if not is_list(outputs) or not outputs:
        raise RunRequestError("tool_outputs", "tool_outputs must be a list of outputs, and not empty.")
    for at, output in enumerate(map(as_object, outputs)):
        where, call_id, failure = f"tool_outputs[{at}]", output.get("call_id"), output.get("error")
        if not isinstance(call_id, str):
            raise RunRequestError(f"{where}.call_id", f"{where}.call_id must be the id of a call.")
        if not isinstance(failure, bool | str | None):
            raise RunRequestError(f"{where}.error", f"{where}.error must be true, false or a text.")
        if output.get("output") is None and not isinstance(failure, str):
            raise RunRequestError(f"{where}.output", f"{where}.output is missing.")
        if status != "waiting_for_tools":
            message = f"The run does not wait for an output of {call_id}: it is {status}."
            raise RunRequestError(f"{where}.call_id", message, "run_not_waiting")
        if call_id not in pending or call_id in given:
            what = "repeated" if call_id in given else "not a call that the run waits for"
            raise RunRequestError(f"{where}.call_id", f"{call_id} is {what}.", "call_not_pending")
        given[call_id] = output
    for call_id in pending:
        if call_id not in given:
            message = f"The output of {call_id} is missing. Send all outputs of a turn at once."
            raise RunRequestError("tool_outputs", message)
    return [given[call_id] for call_id in pending]


def next_request(last: bytes, summary: StreamSummary, outputs: Sequence[_Object]) -> bytes:
    """Return the chat request after a turn that made calls: the same one, with the calls and their outputs."""
    request, answer = as_object(parse(last)), _message(summary)
    calls = [call for call in summary.wire.calls() if call.choice == 0 and call.state is State.RUNNING]
    answer["tool_calls"] = [
        {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        if call.custom
        else {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    results = [{"role": "tool", "tool_call_id": each["call_id"], "content": _content(each)} for each in outputs]
    return dumps(request | {"messages": [*as_list(request.get("messages")), answer, *results]})


def _message(summary: StreamSummary) -> _Object:
    answer = summary.answer()
    return {"role": "assistant", "content": answer.text or answer.refusal or None}


def _content(output: _Object) -> str:
    """Return the output as text, with the text of its error."""
    value, failure = output.get("output"), output.get("error")
    text = "" if value is None else value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
    return "\n".join(filter(None, (text, failure if isinstance(failure, str) else "")))


def history_of(start: bytes, last: bytes, output: str) -> list[Any]:
    """Return the conversation of a finished run, without its own instructions and calls that were never answered."""
    instructed, asked = bool(as_object(parse(start)).get("instructions")), as_object(parse(last))
    messages = as_list(asked.get("messages"))[instructed:]
    if "messages" not in asked:  # the start of a run of the upstream's
        messages = [*as_list(asked.get("conversation_history")), *_asked(asked)]
    return [*messages, *([{"role": "assistant", "content": output}] if output else [])]


def start_request(request: bytes, given: Mapping[str, Any], history: Sequence[Any]) -> bytes:
    """Return the request that starts a run of the upstream's; `history` is what the tapes know of the conversation.

    hermes-agent takes a conversation only as `conversation_history` of roles and texts, and with it only the last
    message of `input`. Neither `session_id` nor a run as `previous_response_id` continues one there.
    """
    if not history or "conversation_history" in given:
        return request
    *before, last = _asked(given)
    sent = {name: value for name, value in given.items() if name not in ("tools", "previous_response_id")}
    return dumps(sent | {"conversation_history": list(_texts([*history, *before])), "input": [last]})


def _texts(messages: Iterable[Any]) -> Iterator[_Object]:
    """Yield roles and texts; hermes-agent turns anything else into words of Python."""
    for message in map(as_object, messages):
        content = message.get("content")
        parts = [as_object(part).get("text") for part in as_list(content)] or [content]
        text = "".join(part for part in parts if isinstance(part, str))
        if text and message.get("role") in ("user", "assistant", "system"):
            yield {"role": message["role"], "content": text}
