"""Chat completions requests to and from the neutral request of crossing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ..core.json_text import as_list, as_object, as_text, is_object
from ..crossing.envelope import is_envelope, opened
from ..crossing.given import Given
from ..crossing.request import CUSTOM_SCHEMA, SHARED, Choice, Format, Options, Request, Tool
from ..crossing.turns import FAILED_MARK, Call, Media, Part, Refusal, Result, Text, Thought, Turn, hints_of, joined

__all__ = ["read", "write"]

_READ: Final = frozenset(
    (
        *(*SHARED, "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls"),
        *("reasoning_effort", "response_format", "stop", "stream", "stream_options", "temperature", "tool_choice"),
        *("tools", "top_p", "verbosity"),
    )
)
_STOPS_MAX: Final = 4
#: What a chat upstream gave with a thought, and wants back.
_PROOFS: Final = ("extra_content", "reasoning_details")


# -- reading ----------------------------------------------------------------------------------------------------------


def read(body: Any) -> Request:
    """Return the request in a body; raise RequestError for what cannot cross."""
    given = Given(body)
    lost = given.check(_READ)
    limit = "max_tokens" if given.get("max_completion_tokens") is None else "max_completion_tokens"
    return Request(
        model=given.text("model"),
        turns=tuple(_turn(message, lost) for message in given.at("messages").objects()),
        stream=given.flag("stream") is True,
        tools=tuple(map(_tool, given.list("tools"))),
        choice=_choice(given),
        parallel=given.flag("parallel_tool_calls"),
        max_tokens=given.whole(limit),
        temperature=given.number("temperature"),
        top_p=given.number("top_p"),
        stop=given.texts("stop"),
        format=_format(given.maybe("response_format")),
        effort=given.maybe_text("reasoning_effort"),
        verbosity=given.word("verbosity"),
        user=given.word("safety_identifier") or given.word("user"),
        shared={member: given.get(member) for member in SHARED if given.get(member) is not None},
        lost=frozenset(lost),
    )


def _turn(message: Given, lost: set[str]) -> Turn:
    match message.get("role"):
        case "system" | "developer" | "user" as role:
            return Turn.of(role, _parts(message), message)
        case "assistant":
            return Turn.of("assistant", [*_answer(message, lost)], message)
        case "tool":
            call_id, failed = message.text("tool_call_id"), message.get("is_error") is True
            return Turn("user", (Result.of(call_id, _parts(message), message, failed=failed),))
        case _:
            raise message.unknown("role")


def _parts(message: Given) -> list[Part]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return [Text(content)] if content else []
    return [_part(part) for part in message.at("content").blocks()]


def _part(part: Given) -> Part:
    hints = hints_of(part)
    match part.get("type"):
        case "text":
            return Text(part.text("text"), hints)
        case "refusal":
            return Refusal(part.text("refusal"))
        case "image_url":
            image = part.inner("image_url")
            return Media.of("image", image.text("url"), hints, detail=image.word("detail"))
        case "file":
            file = part.inner("file")
            if not file.word("file_data"):
                raise file.at("file_id").refuse("files of another upstream do not cross; send file_data.")
            return Media.of("file", file.word("file_data"), hints, name=file.word("filename"))
        case _:
            raise part.unknown()


def _answer(message: Given, lost: set[str]) -> Iterator[Part]:
    for member in ("audio", "function_call"):
        if message.get(member) is not None:
            raise message.at(member).refuse("does not cross to an upstream of another dialect.")
    lost.update(["citations"] if message.get("annotations") else ())
    lost.update(["reasoning_history"] if message.get("reasoning_signature") else ())
    thought = _thought(message)
    if thought.text or thought.proofs or thought.calls:
        yield thought
    yield from _parts(message)
    if message.word("refusal"):
        yield Refusal(message.word("refusal"))
    yield from map(_call, message.list("tool_calls"))


def _thought(message: Given) -> Thought:
    text = message.word("reasoning_content") or message.word("reasoning")
    details = as_list(message.get("reasoning_details"))
    data = [as_object(detail).get("data") for detail in details]
    envelopes = [opened("", one) for one in data if is_envelope(one)]
    proofs = [proof for envelope in envelopes for proof in envelope.proofs]
    rest = [detail for detail, one in zip(details, data, strict=True) if not is_envelope(one)]
    calls = {call: given for envelope in envelopes for call, given in envelope.calls.items()}
    return Thought(text, (*proofs, *([("reasoning_details", rest)] if rest else ())), calls)


def _call(call: Given) -> Call:
    extra = call.get("extra_content")
    proofs = (("extra_content", extra),) if extra is not None else ()
    kind, member = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
    inner = call.inner(kind)
    return Call(id=call.text("id"), name=inner.text("name"), kind=kind, arguments=inner.word(member), proofs=proofs)


def _kind(tool: Given) -> str:
    if tool.get("type") not in ("function", "custom"):
        raise tool.unknown()
    return tool.text("type")


def _tool(tool: Given) -> Tool:
    kind = _kind(tool)
    inner = tool.inner(kind)
    grammar, schema = as_object(as_object(inner.get("format")).get("grammar")), inner.get("parameters")
    return Tool(
        name=inner.text("name"),
        kind=kind,
        description=inner.word("description"),
        schema=schema if is_object(schema) else None,
        strict=inner.flag("strict"),
        grammar=(as_text(grammar.get("syntax")), as_text(grammar.get("definition"))) if grammar else None,
        hints=hints_of(tool),
    )


def _choice(given: Given) -> Choice | None:
    mode = given.get("tool_choice")
    if mode is None or mode in ("auto", "none", "required"):
        return mode and Choice(mode=mode)
    if isinstance(mode, str):
        raise given.unknown("tool_choice")
    choice = given.inner("tool_choice")
    if choice.get("type") == "allowed_tools":
        inner = choice.inner("allowed_tools")
        allowed = frozenset((tool.inner(_kind(tool)).text("name"), "") for tool in inner.list("tools"))
        return Choice(mode="required" if inner.get("mode") == "required" else "auto", allowed=allowed)
    return Choice(mode="tool", tool=(choice.inner(_kind(choice)).text("name"), ""))


def _format(form: Given) -> Format | None:
    match form.get("type"):
        case None | "text":
            return None
        case "json_object":
            return Format(kind="json_object")
        case "json_schema":
            return Format.of(form.inner("json_schema"))
        case _:
            raise form.unknown()


# -- writing ----------------------------------------------------------------------------------------------------------


def write(request: Request, options: Options, lost: set[str]) -> dict[str, Any]:
    """Return the body of a request whose names, ids and order fit, and add what it loses."""
    body: dict[str, Any] = {"model": request.model, "messages": list(_messages(request.turns, options, lost))}
    if request.tools:
        body["tools"] = [_tool_out(tool, options, lost) for tool in request.tools]
    if request.choice is not None:
        body["tool_choice"] = _choice_out(request.choice)
    if request.parallel is not None:
        body["parallel_tool_calls"] = request.parallel
    if request.max_tokens is not None:
        body[options.chat_max_tokens_member] = request.max_tokens
    if len(request.stop) > _STOPS_MAX:
        lost.add("stop")
    if request.summary:
        lost.add("reasoning_summary")
    settings: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": list(request.stop[:_STOPS_MAX]) or None,
        "response_format": _format_out(request.format),
        "reasoning_effort": request.effort,
        "verbosity": request.verbosity or None,
    }
    body |= {member: value for member, value in settings.items() if value is not None}
    shared = request.shared_out
    if shared.pop("store", False) is True:  # what OpenAI stores of one dialect cannot be found by the other
        lost.add("store")
    body |= shared
    if request.stream:
        body["stream"] = True
    return body


def _messages(turns: Sequence[Turn], options: Options, lost: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the messages; the system turns before all others share one, since many templates take only one."""
    for role, group in groupby(turns, key=_role):
        if role == "system":
            yield from _system(list(group), options, lost)
            continue
        for turn in group:
            if turn.role == "assistant":
                yield _answer_out(turn, options, lost)
            elif any(isinstance(part, Result) for part in turn.parts):
                yield from _results(turn.parts, options, lost)
            else:
                yield {"role": "user", "content": _content(turn.parts, options, lost)}


def _role(turn: Turn) -> str:
    return "system" if turn.role == "developer" else turn.role


def _system(turns: Sequence[Turn], options: Options, lost: set[str]) -> Iterator[dict[str, Any]]:
    parts = [part for turn in turns for part in turn.parts]
    if parts:
        yield {"role": "system", "content": _content(parts, options, lost)}


def _content(parts: Sequence[Part], options: Options, lost: set[str]) -> str | list[dict[str, Any]]:
    """Return a string where it can hold everything, since many servers take nothing else."""
    shown = [part for part in parts if isinstance(part, Media) or (isinstance(part, Text) and part.text)]
    written = [_part_out(part, options, lost) for part in shown]
    if all(part["type"] == "text" and len(part) == 2 for part in written):
        return "\n\n".join(part["text"] for part in written)
    return written


def _part_out(part: Text | Media, options: Options, lost: set[str]) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text, **_hints(part.hints, options, lost)}
        case Media(kind="image"):
            detail = "high" if part.detail == "original" else part.detail
            image = {"url": part.data_url, **({"detail": detail} if detail else {})}
            return {"type": "image_url", "image_url": image, **_hints(part.hints, options, lost)}
        case _:
            if not part.data:
                lost.add("file_url")
                return {"type": "text", "text": f"[File: {part.url}]"}
            file = {"filename": part.name or "file.pdf", "file_data": part.data_url}
            return {"type": "file", "file": file, **_hints(part.hints, options, lost)}


def _hints(hints: Mapping[str, Any], options: Options, lost: set[str]) -> dict[str, Any]:
    passed = dict(hints)
    if "cache_control" in passed and not options.cache_control:
        del passed["cache_control"]
        lost.add("cache_control")
    return passed


def _answer_out(turn: Turn, options: Options, lost: set[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": joined(turn.parts) or None}
    refusals = [part.text for part in turn.parts if isinstance(part, Refusal)]
    if refusals and message["content"] == "\n\n".join(refusals):
        message |= {"content": None, "refusal": "\n\n".join(refusals)}
    calls = [part for part in turn.parts if isinstance(part, Call)]
    thoughts = [part for part in turn.parts if isinstance(part, Thought)]
    message |= _thought_out(thoughts, options, lost, calls=bool(calls))
    if calls:
        message["tool_calls"] = [_call_out(call, options) for call in calls]
    elif message["content"] is None and "refusal" not in message:
        message["content"] = ""
    return message


def _thought_out(thoughts: Sequence[Thought], options: Options, lost: set[str], *, calls: bool) -> dict[str, Any]:
    """Return the reasoning that an upstream such as DeepSeek demands with its calls."""
    text = "\n\n".join(thought.text for thought in thoughts if thought.text)
    proofs = [proof for thought in thoughts for proof in thought.proofs]
    details = [entry for kind, value in proofs if kind == "reasoning_details" for entry in as_list(value)]
    extra = {kind: value for kind, value in proofs if kind == "extra_content"}
    unknown = any(kind not in _PROOFS for kind, _ in proofs)
    if unknown or (text and not calls) or (options.vendor and (text or proofs)):
        lost.add("reasoning_history")
    if options.vendor:
        return {}
    return {
        **extra,
        **({"reasoning_content": text} if text and calls else {}),
        **({"reasoning_details": details} if details else {}),
    }


def _call_out(call: Call, options: Options) -> dict[str, Any]:
    extra = {kind: value for kind, value in call.proofs if kind == "extra_content" and not options.vendor}
    function = {"name": call.name, "arguments": call.json}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _results(parts: Sequence[Part], options: Options, lost: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a tool message for each result, and after all of them one user message with their images and files."""
    media: list[dict[str, Any]] = []
    for part in parts:
        assert isinstance(part, Result), "results have a turn of their own"
        shown = [one for one in part.parts if isinstance(one, Media)]
        text = joined(part.parts)
        if shown:
            lost.add("media_moved")
            text = text or "The content is in the next user message."
            media.append({"type": "text", "text": f"Content of the result of tool call {part.id} ({part.name}):"})
            media += [_part_out(one, options, lost) for one in shown]
        if part.failed:
            lost.add("is_error")
            text = FAILED_MARK + text
        yield {"role": "tool", "tool_call_id": part.id, "content": text}
    if media:
        yield {"role": "user", "content": media}


def _tool_out(tool: Tool, options: Options, lost: set[str]) -> dict[str, Any]:
    schema = CUSTOM_SCHEMA if tool.kind == "custom" else tool.schema
    function: dict[str, Any] = {"name": tool.name}
    if tool.described:
        function["description"] = tool.described
    if schema is not None:
        function["parameters"] = dict(schema)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function, **_hints(tool.hints, options, lost)}


def _choice_out(choice: Choice) -> Any:
    return {"type": "function", "function": {"name": choice.tool[0]}} if choice.mode == "tool" else choice.mode


def _format_out(form: Format | None) -> dict[str, Any] | None:
    if form is None or form.kind == "json_object":
        return None if form is None else {"type": "json_object"}
    return {"type": "json_schema", "json_schema": form.members}
