"""Responses requests to and from the neutral request of crossing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from ..core.json_text import as_list, as_object, as_text, dumps, is_object
from ..crossing.envelope import is_envelope, opened
from ..crossing.given import Given
from ..crossing.request import SHARED, Choice, Format, Options, Request, Tool
from ..crossing.turns import FAILED_MARK, Call, Media, Part, Refusal, Result, Text, Thought, Turn, hints_of

__all__ = ["earlier", "read", "sealed_items", "write"]

_READ: Final = (
    *(*SHARED, "input", "instructions", "max_output_tokens", "model", "parallel_tool_calls"),
    *("previous_response_id", "reasoning", "stream", "temperature", "text", "tool_choice", "tools", "top_p"),
)
#: What the Responses object repeats of its request, as it came.
_ECHO: Final = (
    *("instructions", "max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls"),
    *("previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store"),
    *("temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
)
#: Tools that the upstream runs itself, or whose input only its models know; each may have a version at its end.
_HOSTED_TOOLS: Final = (
    *("apply_patch", "code_interpreter", "computer", "file_search", "image_generation", "local_shell", "mcp"),
    *("programmatic_tool_calling", "shell", "web_search"),
)
#: What such tools leave in a history.
_HOSTED_ITEM: Final = re.compile(
    "((apply_patch|computer|local_shell|shell)_call(_output)?"
    "|(code_interpreter|file_search|image_generation|mcp|web_search)_call|mcp_(approval_re(quest|sponse)|list_tools))"
)
_SEARCH: Final = "tool_search"


# -- reading ----------------------------------------------------------------------------------------------------------


def read(body: Any) -> Request:
    """Return the request in a body; raise RequestError for what cannot cross."""
    given = Given(body)
    reading = _Reading(given.check(_READ))
    turns = tuple(reading.turns(given, "input"))
    for tool in given.list("tools"):
        reading.tool(tool, deferrable=True)
    reasoning, text = given.maybe("reasoning"), given.maybe("text")
    if reasoning.value.keys() - {"effort", "summary", "generate_summary"}:
        reading.lost.add("reasoning_mode")
    instructions = given.maybe_text("instructions")
    return Request(
        model=given.text("model"),
        instructions=(Turn("system", (Text(instructions),)),) if instructions else (),
        turns=turns,
        stream=given.flag("stream") is True,
        tools=tuple(reading.tools),
        searches=reading.searches,
        choice=_choice(given),
        parallel=given.flag("parallel_tool_calls"),
        max_tokens=given.whole("max_output_tokens"),
        temperature=given.number("temperature"),
        top_p=given.number("top_p"),
        format=_format(text.maybe("format")),
        effort=reasoning.maybe_text("effort"),
        summary=reasoning.word("summary") or reasoning.word("generate_summary"),
        verbosity=text.word("verbosity"),
        user=given.word("safety_identifier") or given.word("user"),
        shared={member: given.get(member) for member in SHARED if given.get(member) is not None},
        previous_id=given.maybe_text("previous_response_id") or "",
        echo=_echo(given),
        lost=frozenset(reading.lost),
    )


def _echo(given: Given) -> dict[str, Any]:
    """Return what the Responses object repeats, its tools with every member that they have there.

    Raise RequestError for text, flags and tables that an SDK could not read there.
    """
    for member in ("prompt_cache_key", "safety_identifier", "service_tier", "truncation", "user"):
        given.maybe_text(member)
    given.flag("store")
    given.maybe("metadata")
    echo = {member: given.get(member) for member in _ECHO if given.get(member) is not None}
    if "tools" in echo:
        whole = {"description": None, "parameters": None, "strict": True}
        tools: list[dict[str, Any]] = echo["tools"]
        echo["tools"] = [{**whole, **tool} if tool.get("type") == "function" else tool for tool in tools]
    return echo


def earlier(body: Any, answer: Any) -> tuple[Turn, ...]:
    """Return the turns of an earlier request and of the response to it, without its instructions."""
    reading = _Reading(set())
    return (*reading.turns(Given(as_object(body)), "input"), *reading.turns(Given(as_object(answer)), "output"))


def sealed_items(body: Any) -> list[int]:
    """Return which items of the input are thoughts with an envelope, which no upstream of this dialect may get."""
    items = as_list(as_object(body).get("input"))
    return [at for at, item in enumerate(items) if is_envelope(as_object(item).get("encrypted_content"))]


class _Reading:
    """Reads the items and tools of one request."""

    def __init__(self, lost: set[str]) -> None:
        self.lost = lost
        self.tools: list[Tool] = []
        self.searches = False

    def turns(self, given: Given, key: str) -> Iterator[Turn]:
        if isinstance(given.get(key), str):
            yield Turn("user", (Text(given.get(key)),))
            return
        for item in given.at(key).blocks():
            yield from self._item(item)

    def _item(self, item: Given) -> Iterator[Turn]:
        match item.get("type") or "message":
            case "message":
                yield self._message(item)
            case "reasoning":
                parts = map(as_object, as_list(item.get("content")) or as_list(item.get("summary")))
                texts = [as_text(part.get("text")) for part in parts]
                proofs, calls = opened("encrypted_content", item.get("encrypted_content"))
                yield Turn("assistant", (Thought("\n\n".join(filter(None, texts)), proofs, calls),))
            case "function_call":
                yield _call(item, item.text("name"), item.word("arguments"))
            case "custom_tool_call":
                yield _call(item, item.text("name"), item.word("input"), "custom")
            case "function_call_output" | "custom_tool_call_output":
                yield self._result(item)
            case "item_reference":
                raise item.at("id").refuse(f"Item with id {item.get('id')!r} not found.")
            case "additional_tools":
                self._found(item)
            case "tool_search_call" | "tool_search_output":
                yield from self._search(item)
            case str(kind) if _HOSTED_ITEM.fullmatch(kind):
                self.lost.add("hosted_calls")
            case _:
                raise item.unknown()

    def _message(self, item: Given) -> Turn:
        role, parts = item.get("role"), self._parts(item.at("content"))
        if role not in ("system", "developer", "user", "assistant"):
            raise item.unknown("role")
        return Turn.of(role, parts, item)

    def _parts(self, content: Given) -> list[Part]:
        if isinstance(content.value, str):
            return [Text(content.value)] if content.value else []
        return [self._part(part) for part in content.blocks()]

    def _part(self, part: Given) -> Part:
        hints = hints_of(part)
        if part.get("annotations"):
            self.lost.add("citations")
        match part.get("type"):
            case "input_text" | "output_text" | "text":
                return Text(part.text("text"), hints)
            case "refusal":
                return Refusal(part.text("refusal"))
            case "input_image" if part.word("image_url"):
                return Media.of("image", part.word("image_url"), hints, detail=part.word("detail"))
            case "input_file" if url := part.word("file_data") or part.word("file_url"):
                return Media.of("file", url, hints, name=part.word("filename"))
            case "input_image" | "input_file" as kind:
                if part.get("file_id") is None:
                    raise part.at("file_data" if kind == "input_file" else "image_url").refuse("must be a string.")
                raise part.at("file_id").refuse("files of another upstream do not cross; send their data.")
            case _:
                raise part.unknown()

    def _result(self, item: Given) -> Turn:
        call_id, parts, failed = item.text("call_id"), self._parts(item.at("output")), item.get("status") == "failed"
        return Turn("user", (Result.of(call_id, parts, item, failed=failed),))

    def tool(self, tool: Given, *, deferrable: bool, namespace: str = "") -> None:
        """Read one tool; `deferrable` unless a search found it."""
        kind, schema = tool.text("type"), tool.get("parameters")
        if kind == "namespace" and not namespace:
            for inner in tool.at("tools").objects():
                self.tool(inner, deferrable=deferrable, namespace=tool.text("name"))
        elif kind in ("function", "custom") or (kind == _SEARCH and tool.get("execution") == "client"):
            form = as_object(tool.get("format"))
            grammar = as_text(form.get("syntax")), as_text(form.get("definition"))
            self.tools.append(
                Tool(
                    name=_SEARCH if kind == _SEARCH else tool.text("name"),
                    namespace=namespace,
                    kind=kind,
                    description=tool.word("description"),
                    schema=schema if is_object(schema) else None,
                    strict=tool.flag("strict"),
                    grammar=grammar if form.get("type") == "grammar" else None,
                    deferred=deferrable and bool(tool.get("defer_loading")),
                )
            )
        elif kind == _SEARCH or kind.startswith(_HOSTED_TOOLS):
            self.searches = self.searches or kind == _SEARCH
            self.lost.add("hosted_tools")
        else:
            raise tool.unknown()

    def _found(self, item: Given) -> list[str]:
        """Read tools that join those of the request, and return their names."""
        before = len(self.tools)
        for tool in item.at("tools").objects():
            self.tool(tool, deferrable=False)
        return [f"{tool.namespace}.{tool.name}".lstrip(".") for tool in self.tools[before:]]

    def _search(self, item: Given) -> Iterator[Turn]:
        called = item.get("type") == "tool_search_call"
        names = [] if called else self._found(item)
        if item.get("execution") != "client":
            self.lost.add("hosted_calls")
        elif called:
            yield _call(item, _SEARCH, dumps(item.get("arguments") or {}).decode(), _SEARCH)
        else:
            parts = (Text(f"Tools loaded: {', '.join(names) or 'none'}"),)
            yield Turn("user", (Result(id=item.text("call_id"), parts=parts),))


def _call(item: Given, name: str, arguments: str, kind: str = "function") -> Turn:
    call_id, namespace = item.text("call_id"), item.word("namespace")
    return Turn("assistant", (Call(id=call_id, name=name, namespace=namespace, kind=kind, arguments=arguments),))


def _choice(given: Given) -> Choice | None:
    mode = given.get("tool_choice")
    if mode is None or mode in ("auto", "none", "required"):
        return mode and Choice(mode=mode)
    if isinstance(mode, str):
        raise given.unknown("tool_choice")
    choice = given.inner("tool_choice")
    if choice.get("type") == "allowed_tools":
        allowed = frozenset(map(_named, choice.list("tools")))
        return Choice(mode="required" if choice.get("mode") == "required" else "auto", allowed=allowed)
    return Choice(mode="tool", tool=_named(choice))


def _named(tool: Given) -> tuple[str, str]:
    if tool.get("type") not in ("function", "custom"):
        raise tool.unknown()
    return tool.text("name"), tool.word("namespace")


def _format(form: Given) -> Format | None:
    match form.get("type"):
        case None | "text":
            return None
        case "json_object":
            return Format(kind="json_object")
        case "json_schema":
            return Format.of(form)
        case _:
            raise form.unknown()


# -- writing ----------------------------------------------------------------------------------------------------------


def write(request: Request, options: Options, lost: set[str]) -> dict[str, Any]:  # noqa: ARG001 - as the others
    """Return the body of a request whose names, ids and order fit, and add what it loses."""
    instructions = list(takewhile(lambda turn: turn.role == "system", request.turns))
    hints = [_hints(part.hints, lost) for turn in instructions for part in turn.parts if isinstance(part, Text)]
    items = [item for turn in request.turns[len(instructions) :] for item in _items(turn, lost)]
    lost.update(["stop"] if request.stop else ())
    lost.update(["cache_control"] if any(hints) else ())
    form = request.format
    written = form and ({"type": form.kind, **form.members} if form.kind == "json_schema" else {"type": form.kind})
    text = {"format": written, "verbosity": request.verbosity}
    settings: dict[str, Any] = {
        "instructions": "\n\n".join(turn.text for turn in instructions) or None,
        "tools": [_tool_out(tool, lost) for tool in request.tools] or None,
        "tool_choice": _choice_out(request),
        "parallel_tool_calls": request.parallel,
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning": _given({"effort": request.effort, "summary": request.summary}) or None,
        "text": _given(text) or None,
        # Other models than those that think refuse it.
        "include": None if request.effort in (None, "none") else ["reasoning.encrypted_content"],
        "stream": request.stream or None,
    }
    kept = {member: value for member, value in settings.items() if value is not None}
    return {"model": request.model, "input": items, **kept, "store": False, **request.shared_out}


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {member: value for member, value in members.items() if value}


def _items(turn: Turn, lost: set[str]) -> Iterator[dict[str, Any]]:
    if turn.role != "assistant":
        results = [part for part in turn.parts if isinstance(part, Result)]
        yield from (_result_out(result, lost) for result in results)
        parts = [part for part in turn.parts if isinstance(part, Text | Media)]
        if parts or not results:
            yield {"type": "message", "role": turn.role, "content": _content(parts, lost)}
        return
    for part in turn.parts:
        if isinstance(part, Text | Refusal):
            if part.text:
                yield {"type": "message", "role": "assistant", "content": part.text}
        elif isinstance(part, Thought):
            yield from _thought_out(part, lost)
        else:
            assert isinstance(part, Call), "Turn.of lets an answer say nothing else"
            same = {"call_id": part.id, "name": part.name}
            custom = {"type": "custom_tool_call", **same, "input": part.arguments}
            yield custom if part.kind == "custom" else {"type": "function_call", **same, "arguments": part.json}


def _content(parts: Sequence[Text | Media], lost: set[str]) -> str | list[dict[str, Any]]:
    written = [{**_part_out(part), **_hints(part.hints, lost)} for part in parts]
    return str(written[0]["text"]) if len(written) == 1 and written[0].keys() == {"type", "text"} else written


def _part_out(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        return {"type": "input_image", "image_url": part.data_url, "detail": part.detail or "auto"}
    name = part.name or "file.pdf"
    data = {"filename": name, "file_data": part.data_url}
    return {"type": "input_file", **(data if part.data else {"file_url": part.url})}


def _hints(hints: Mapping[str, Any], lost: set[str]) -> dict[str, Any]:
    lost.update(["cache_control"] if set(hints) == {"cache_control"} else ())
    return {name: value for name, value in hints.items() if name == "prompt_cache_breakpoint"}


def _thought_out(thought: Thought, lost: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a reasoning item for each proof; without one, a response that is not stored has none to find."""
    proofs = [as_object(value) for kind, value in thought.proofs if kind == "encrypted_content"]
    lost.update(() if proofs else ["reasoning_history"])
    for at, value in enumerate(proofs):
        summary = [{"type": "summary_text", "text": thought.text}] if thought.text and not at else []
        yield {"type": "reasoning", "summary": summary, **value}


def _result_out(result: Result, lost: set[str]) -> dict[str, Any]:
    output = _content(result.parts, lost) if result.parts else ""
    if result.failed:
        lost.add("is_error")
        mark = {"type": "input_text", "text": FAILED_MARK}
        output = FAILED_MARK + output if isinstance(output, str) else [mark, *output]
    kind = "custom_tool_call_output" if result.kind == "custom" else "function_call_output"
    return {"type": kind, "call_id": result.id, "output": output}


def _tool_out(tool: Tool, lost: set[str]) -> dict[str, Any]:
    _hints(tool.hints, lost)
    same = {"name": tool.name, "description": tool.description}
    if tool.kind == "custom":
        syntax, definition = tool.grammar or ("", "")
        form = {"type": "grammar", "syntax": syntax, "definition": definition} if tool.grammar else {"type": "text"}
        return {"type": "custom", **same, "format": form}
    schema = {"type": "object", "properties": dict[str, Any]()} if tool.schema is None else dict(tool.schema)
    # The default of `strict` is true in this dialect, and false in the others.
    return {"type": "function", **same, "parameters": schema, "strict": tool.strict is True}


def _choice_out(request: Request) -> Any:
    choice = request.choice
    if choice is None or choice.mode != "tool":
        return choice and choice.mode
    kind = next(tool.kind for tool in request.tools if tool.name == choice.tool[0])
    return {"type": "custom" if kind == "custom" else "function", "name": choice.tool[0]}
