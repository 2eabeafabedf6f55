"""Messages requests to and from the neutral request of crossing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final, assert_never

from ..core.json_text import as_list, as_object, as_text, dumps, is_object, parse
from ..crossing.envelope import opened
from ..crossing.given import Given
from ..crossing.names import user_id
from ..crossing.request import CUSTOM_SCHEMA, Choice, Format, Options, Request, Tool
from ..crossing.turns import Call, Media, Part, Refusal, Result, Text, Thought, Turn, hints_of, joined

__all__ = ["read", "write"]

_READ: Final = (
    *("max_tokens", "messages", "metadata", "model", "output_config", "stop_sequences", "stream", "system"),
    *("temperature", "thinking", "tool_choice", "tools", "top_p"),
)
#: Tools whose type has a date: Anthropic or its models know them, no other upstream does.
_TYPED_TOOL: Final = re.compile(r"[a-z_]+_20[0-9]{6}|mcp_toolset")
_SEARCH_TOOL: Final = "tool_search_tool"
#: Blocks of tools that the upstream ran itself.
_HOSTED_BLOCK: Final = re.compile(r"server_tool_use|mcp_tool_use|[a-z_]+_tool_result")
#: Least tokens of a budget for each effort.
_BUDGETS: Final = ((16_384, "high"), (4_096, "medium"), (0, "low"))
_SESSION: Final = re.compile(r"session_([0-9A-Za-z-]+)$")

#: `max_tokens` where neither client nor route gives one: what Claude Code asks of a model that it does not know.
_MAX_TOKENS_DEFAULT: Final = 32_000
_CACHE_CONTROLS_MAX: Final = 4
#: Lists of blocks inside each other: a document in a result in a message has three.
_NESTED_MAX: Final = 4
_THOUGHTS: Final = ("thinking", "redacted_thinking")


# -- reading ----------------------------------------------------------------------------------------------------------


def read(body: Any) -> Request:
    """Return the request in a body; raise RequestError for what cannot cross."""
    given = Given(body)
    reading = _Reading(given.check(_READ))
    output, thinking, choice = given.maybe("output_config"), given.maybe("thinking"), given.maybe("tool_choice")
    turns = tuple(reading.turn(message, output.value) for message in given.at("messages").objects())
    for tool in given.list("tools"):
        reading.tool(tool)
    flag = choice.flag("disable_parallel_tool_use")
    user, cache_key = _user(given)
    system = reading.parts(given, "system")
    return Request(
        model=given.text("model"),
        instructions=(Turn.of("system", system, given.at("system")),) if system else (),
        turns=turns,
        stream=given.flag("stream") is True,
        tools=tuple(reading.tools),
        found=frozenset(reading.found),
        searches=reading.searches,
        choice=_choice(choice),
        parallel=None if flag is None else not flag,
        max_tokens=given.whole("max_tokens"),
        temperature=given.number("temperature"),
        top_p=given.number("top_p"),
        stop=given.texts("stop_sequences"),
        format=_format(output),
        effort=_effort(thinking, output, reading.lost),
        summary="auto" if thinking.get("display") == "summarized" else "",
        user=user,
        shared={"prompt_cache_key": cache_key} if cache_key else {},
        lost=frozenset(reading.lost),
    )


class _Reading:
    """Reads the messages and tools of one request."""

    def __init__(self, lost: set[str]) -> None:
        self.lost = lost
        self.tools: list[Tool] = []
        self.found: set[str] = set()
        self.searches = False

    def turn(self, given: Given, output: Mapping[str, Any]) -> Turn:
        role = given.get("role")
        if role not in ("system", "user", "assistant"):
            raise given.unknown("role")
        said = as_object(given.get("output_config"))
        if said and said != output:  # which Claude Code's system messages have
            self.lost.add("effort")
        return Turn.of(role, self.parts(given, "content"), given)

    def parts(self, given: Given, key: str) -> list[Part]:
        content = given.get(key)
        if given.where.count(".content") > _NESTED_MAX:
            raise given.refuse("is nested too deeply.")
        if content is None or isinstance(content, str):
            return [Text(content)] if content else []
        return [part for block in given.at(key).blocks() for part in self._block(block)]

    def _block(self, block: Given) -> Iterator[Part]:
        match block.get("type"):
            case "text":
                if block.get("citations"):
                    self.lost.add("citations")
                yield Text(block.text("text"), hints_of(block))
            case "thinking":
                proofs, calls = opened("signature", block.get("signature"))
                yield Thought(block.word("thinking"), proofs, calls)
            case "redacted_thinking":
                yield Thought("", *opened("redacted_thinking", block.get("data")))
            case "tool_use":
                arguments = dumps(block.get("input") or {}).decode()
                yield Call(id=block.text("id"), name=block.text("name"), arguments=arguments)
            case "tool_result":
                call_id, parts = block.text("tool_use_id"), self.parts(block, "content")
                yield Result.of(call_id, parts, block, failed=block.get("is_error") is True)
            case "image":
                yield _media("image", block)
            case "document":
                yield from self._document(block)
            case "search_result":
                text = joined(self.parts(block, "content"))
                yield Text(f"{block.word('title')} ({block.word('source')})\n\n{text}")
            case "tool_reference":
                self.found.add(block.text("tool_name"))
                yield Text(f"Tool loaded: {block.text('tool_name')}")
            case str(kind) if _HOSTED_BLOCK.fullmatch(kind):
                self.lost.add("hosted_calls")
                for reference in as_list(as_object(block.get("content")).get("tool_references")):
                    self.found.add(as_text(as_object(reference).get("tool_name")))
            case _:
                raise block.unknown()

    def _document(self, block: Given) -> Iterator[Part]:
        source, title = block.inner("source"), block.word("title")
        if block.get("context"):
            self.lost.add("modality")
        if as_object(block.get("citations")).get("enabled"):
            self.lost.add("citations")
        match source.get("type"):
            case "text":
                yield Text(f"{title}\n\n{source.text('data')}".removeprefix("\n\n"), hints_of(block))
            case "content":
                yield from self.parts(source, "content")
            case _:
                yield _media("file", block, title)

    def tool(self, tool: Given) -> None:
        kind = tool.get("type") or "custom"
        if kind != "custom":
            if not isinstance(kind, str) or not _TYPED_TOOL.fullmatch(kind):
                raise tool.unknown()
            self.searches = self.searches or kind.startswith(_SEARCH_TOOL)
            self.lost.add("hosted_tools")
            return
        if tool.get("input_examples") or tool.get("allowed_callers"):
            self.lost.add("tool_details")
        self.tools.append(
            Tool(
                name=tool.text("name"),
                description=tool.word("description"),
                schema=tool.get("input_schema") if is_object(tool.get("input_schema")) else None,
                strict=tool.flag("strict"),
                deferred=tool.get("defer_loading") is True,
                hints=hints_of(tool),
            )
        )


def _media(kind: Any, block: Given, name: str = "") -> Media:
    source, hints = block.inner("source"), hints_of(block)
    if source.get("type") == "url":
        return Media(kind=kind, url=source.text("url"), name=name, hints=hints)
    if source.get("type") != "base64":
        raise source.unknown()
    return Media(kind=kind, data=source.text("data"), media_type=source.text("media_type"), name=name, hints=hints)


def _choice(choice: Given) -> Choice | None:
    match choice.get("type"):
        case None:
            return None
        case "auto" | "none" as mode:
            return Choice(mode=mode)
        case "any":
            return Choice(mode="required")
        case "tool":
            return Choice(mode="tool", tool=(choice.text("name"), ""))
        case _:
            raise choice.unknown()


def _effort(thinking: Given, output: Given, lost: set[str]) -> str | None:
    effort = output.maybe_text("effort")
    if thinking.get("type") == "disabled":
        if effort is not None:
            lost.add("effort")
        return "none"
    if effort is None and thinking.get("type") == "enabled":
        budget = thinking.whole("budget_tokens") or 0
        return next((word for least, word in _BUDGETS if budget >= least), "low")
    return effort


def _format(output: Given) -> Format | None:
    form = output.maybe("format")
    if not form.value:
        return None
    if form.get("type") != "json_schema":
        raise form.unknown()
    return Format(kind="json_schema", schema=as_object(form.get("schema")), strict=True)


def _user(given: Given) -> tuple[str, str]:
    """Return the id of the end user, and that of the session in it: Claude Code gives both, as JSON or in one word."""
    user = as_text(as_object(given.get("metadata")).get("user_id"))
    said = as_object(parse(user.encode())) if user.startswith("{") else {}
    word = _SESSION.search(user)
    return user_id(user), user_id(as_text(said.get("session_id")) or (word[1] if word else ""))


# -- writing ----------------------------------------------------------------------------------------------------------


def write(request: Request, options: Options, lost: set[str]) -> dict[str, Any]:  # noqa: ARG001 - as the others
    """Return the body of a request whose names, ids and order fit, and add what it loses."""
    writing = _Writing(lost)
    tools = [writing.tool(tool) for tool in request.tools]
    leading = list(takewhile(lambda turn: turn.role in ("system", "developer"), request.turns))
    system = [block for turn in leading for block in writing.blocks(turn.parts)]
    messages = list(writing.messages(request.turns[len(leading) :]))
    if (limit := request.max_tokens) is None:
        limit = _MAX_TOKENS_DEFAULT
        lost.add("max_tokens_default")
    members: dict[str, Any] = {
        "system": system,
        "tools": tools,
        "tool_choice": _choice_out(request),
        "stop_sequences": list(request.stop),
        "metadata": {"user_id": request.user} if request.user else None,
        "stream": request.stream,
    }
    body: dict[str, Any] = {"model": request.model, "max_tokens": limit, "messages": messages}
    body |= {member: value for member, value in members.items() if value}
    body |= _thinking(request, messages, lost)
    body |= _sampling(request, lost, thinks=as_object(body.get("thinking")).get("type") == "adaptive")
    for member in request.shared.keys() - {"user", "safety_identifier"}:
        if request.shared[member] not in (None, False, "", "auto"):
            lost.add("prompt_cache_key" if member.startswith("prompt_cache_") else member)
    lost.update(["verbosity"] if request.verbosity else ())
    return body


class _Writing:
    """Writes blocks, and counts their cache hints."""

    def __init__(self, lost: set[str]) -> None:
        self._lost = lost
        self._hints = 0

    def messages(self, turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
        for role, group in groupby(turns, key=lambda turn: "system" if turn.role == "developer" else turn.role):
            blocks = self.blocks([part for turn in group for part in turn.parts])
            if role != "assistant":
                yield {"role": role, "content": self._content(blocks)}
            elif blocks:  # thinking first, as Anthropic demands
                yield {"role": role, "content": sorted(blocks, key=lambda block: block["type"] not in _THOUGHTS)}

    def _content(self, blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Return content that Anthropic takes: a message may not be blank."""
        if all(block["type"] == "text" and block["text"].isspace() for block in blocks):
            self._lost.add("empty_text")
            return "(empty)"
        return str(blocks[0]["text"]) if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks

    def blocks(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """Return the blocks of parts; empty texts are left out, since Anthropic refuses them anywhere."""
        return [block for part in parts for block in self._block(part)]

    def _block(self, part: Part) -> Iterator[dict[str, Any]]:
        match part:
            case Text() | Refusal():
                if part.text:
                    hints = self._cache(part.hints) if isinstance(part, Text) else {}
                    yield {"type": "text", "text": part.text, **hints}
            case Media():
                yield {**self._media(part), **self._cache(part.hints)}
            case Thought():
                yield from self._thought(part)
            case Call():
                yield {"type": "tool_use", "id": part.id, "name": part.name, "input": part.object}
            case Result():
                result = {"type": "tool_result", "tool_use_id": part.id, "content": self.blocks(part.parts)}
                yield {**result, "is_error": True} if part.failed else result
            case _:
                assert_never(part)

    def _thought(self, thought: Thought) -> Iterator[dict[str, Any]]:
        proofs = [(kind, value) for kind, value in thought.proofs if kind in ("signature", "redacted_thinking")]
        if not proofs:
            self._lost.add("reasoning_history")
        for kind, value in proofs:
            signed = {"type": "thinking", "thinking": thought.text, "signature": value}
            yield signed if kind == "signature" else {"type": kind, "data": value}

    def _media(self, media: Media) -> dict[str, Any]:
        if media.detail not in ("", "auto"):
            self._lost.add("modality")
        data = {"type": "base64", "media_type": media.media_type, "data": media.data}
        source = data if media.data else {"type": "url", "url": media.url}
        if media.kind == "image":
            return {"type": "image", "source": source}
        return {"type": "document", "source": source, **({"title": media.name} if media.name else {})}

    def _cache(self, hints: Mapping[str, Any]) -> dict[str, Any]:
        self._hints += bool(hints)
        if not hints or self._hints > _CACHE_CONTROLS_MAX:
            self._lost.update(["cache_control"] if hints else ())
            return {}
        return {"cache_control": hints.get("cache_control", {"type": "ephemeral"})}

    def tool(self, tool: Tool) -> dict[str, Any]:
        schema = CUSTOM_SCHEMA if tool.kind == "custom" else tool.schema or {}
        written: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **schema}}
        more = {"description": tool.described, "strict": tool.strict}
        return written | {member: value for member, value in more.items() if value} | self._cache(tool.hints)


def _choice_out(request: Request) -> dict[str, Any] | None:
    choice = request.choice or Choice(mode="auto")
    written: dict[str, Any] = {"type": {"required": "any"}.get(choice.mode, choice.mode)}
    if choice.mode == "tool":
        written["name"] = choice.tool[0]
    if request.parallel is False:
        return {**written, "disable_parallel_tool_use": True}
    return written if request.choice is not None else None


def _thinking(request: Request, messages: Sequence[Mapping[str, Any]], lost: set[str]) -> dict[str, Any]:
    output: dict[str, Any] = {}
    form, effort = request.format, request.effort
    if form is not None and form.kind == "json_schema":
        output["format"] = {"type": "json_schema", "schema": dict(form.schema)}
    lost.update(["json_object"] if form is not None and not output else ())
    lost.update(["format_description"] if form is not None and form.description else ())
    lost.update(["reasoning_summary"] if effort is None and request.summary else ())
    thinking: dict[str, Any] = {"type": "disabled"} if effort == "none" else {}
    if effort not in (None, "none"):
        output["effort"] = "low" if effort == "minimal" else effort
        lost.update(["effort"] if effort == "minimal" else ())
        thinking = {"type": "adaptive", **({"display": "summarized"} if request.summary else {})}
        forced = request.choice is not None and request.choice.mode in ("required", "tool")
        if forced or _calls_without_thought(messages):  # which Anthropic refuses together with thinking
            lost.add("thinking")
            thinking = {}
    members = {"thinking": thinking, "output_config": output}
    return {member: value for member, value in members.items() if value}


def _calls_without_thought(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the turn that goes on with results began without thinking."""
    answers = [message["content"] for message in messages if message["role"] == "assistant"]
    kinds = {block["type"] for block in answers[-1]} if answers else set[str]()
    return "tool_use" in kinds and kinds.isdisjoint(_THOUGHTS)


def _sampling(request: Request, lost: set[str], *, thinks: bool) -> dict[str, Any]:
    """Return temperature and top_p as far as Anthropic takes them: up to 1, and hardly any together with thinking."""
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    given = {member: value for member, value in asked.items() if value is not None}
    least = {"temperature": 1.0, "top_p": 0.95} if thinks else dict[str, float]()
    kept = {member: min(value, 1) for member, value in given.items() if value >= least.get(member, value)}
    if kept != given:
        lost.add("temperature")
    return kept
