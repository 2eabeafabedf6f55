"""Scripted streams (synthetic): one story in the frames of each dialect, and what every client must get.

A story is a list of steps. `Scripted.frames("responses")` writes it as that dialect's servers write it, so the same
story runs through all nine pairs of client and upstream, and through other translators.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.json_text import dumps

__all__ = ["DIALECTS", "OWN", "STREAMS", "Arguments", "Begin", "End", "Expected", "Finish", "Say", "Scripted", "named"]

DIALECTS: Final = ("chat", "responses", "messages")
MODEL: Final = "fake"
_INPUT, _OUTPUT = 11, 7


class Say(NamedTuple):
    """A piece of text, of a thought or of a refusal."""

    kind: Literal["text", "reasoning", "refusal"]
    text: str


class Begin(NamedTuple):
    """The start of a call, under a number of its own."""

    number: int
    id: str
    name: str


class Arguments(NamedTuple):
    """A piece of a call's arguments."""

    number: int
    text: str


class End(NamedTuple):
    """The end of a call, where the dialect has one."""

    number: int


class Finish(NamedTuple):
    """The end of the answer, by a chat finish reason, with usage or without."""

    reason: str
    usage: bool = True


class Fail(NamedTuple):
    """An error inside the stream."""

    message: str
    code: str


class Done(NamedTuple):
    """A terminator without a finish: nothing has ended but the stream."""


Step = Say | Begin | Arguments | End | Finish | Fail | Done


@dataclass(frozen=True)
class Expected:
    """What a client of any dialect must get."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    #: Id, name and arguments of each call that the client may run.
    calls: tuple[tuple[str, str, str], ...] = ()
    #: `stop`, `tool_calls`, `length`, `content_filter`, or `error`.
    ending: str = "stop"
    #: What came after what.
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scripted:
    """One story."""

    name: str
    steps: Sequence[Step]
    expected: Expected
    #: How the connection ends: `eof` or `reset`.
    cause: str = "eof"
    #: Dialects whose servers cannot tell it.
    without: frozenset[str] = field(default_factory=frozenset[str])

    def frames(self, dialect: str) -> list[bytes]:
        """Return the frames of an upstream of this dialect."""
        writers = {"chat": _chat, "responses": _responses, "messages": _messages}
        return list(writers[dialect](self.steps))


# -- chat -------------------------------------------------------------------------------------------------------------

_KEYS: Final = {"text": "content", "reasoning": "reasoning_content", "refusal": "refusal"}


def _chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    head = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": MODEL}
    return b"data: %b\n\n" % dumps({**head, "choices": choices, **more})


def _chat(steps: Iterable[Step]) -> Iterator[bytes]:
    yield _chunk({"role": "assistant", "content": ""})
    for step in steps:
        match step:
            case Say(kind, text):
                yield _chunk({_KEYS[kind]: text})
            case Begin(number, call_id, name):
                function = {"name": name, "arguments": ""}
                yield _chunk(
                    {"tool_calls": [{"index": number, "id": call_id, "type": "function", "function": function}]}
                )
            case Arguments(number, text):
                yield _chunk({"tool_calls": [{"index": number, "function": {"arguments": text}}]})
            case End():
                pass
            case Finish(reason, usage):
                yield _chunk({}, reason)
                if usage:
                    counts = {"prompt_tokens": _INPUT, "completion_tokens": _OUTPUT, "total_tokens": _INPUT + _OUTPUT}
                    yield _chunk(usage=counts)
                yield b"data: [DONE]\n\n"
            case Fail(message, code):
                error = {"error": {"message": message, "type": "server_error", "code": code}}
                yield b"data: %b\n\n" % dumps(error)
            case Done():
                yield b"data: [DONE]\n\n"


# -- Responses --------------------------------------------------------------------------------------------------------


class _Responses:
    """The frames of a Responses server, whose calls may be open at the same time."""

    def __init__(self) -> None:
        self.sequence = 0
        self.output: list[dict[str, Any]] = []
        self.items = 0
        self.said: tuple[str, int, list[str]] | None = None  # kind, place and pieces of the open message or thought
        self.calls: dict[int, tuple[int, dict[str, Any]]] = {}

    def frame(self, type_: str, **members: Any) -> bytes:
        value = {"type": type_, "sequence_number": self.sequence, **members}
        self.sequence += 1
        return b"event: %b\ndata: %b\n\n" % (type_.encode(), dumps(value))

    def response(self, status: str, **members: Any) -> dict[str, Any]:
        known = {"id": "resp_scripted", "object": "response", "created_at": 1_700_000_000, "status": status}
        rest = {"error": None, "incomplete_details": None, "model": MODEL, "output": self.output, "usage": None}
        fixed = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": list[Any]()}
        return {**known, **rest, **fixed, **members}

    def place(self) -> int:
        self.items += 1
        return self.items - 1

    def say(self, kind: str, text: str) -> Iterator[bytes]:
        if self.said is None or self.said[0] != kind:
            yield from self.hush()
            at = self.place()
            self.said = (kind, at, [])
            if kind == "reasoning":
                item: dict[str, Any] = {"id": f"rs_{at}", "type": "reasoning", "summary": []}
                part: dict[str, Any] = {"type": "summary_text", "text": ""}
                added, index = "response.reasoning_summary_part.added", {"summary_index": 0}
            else:
                item = {"id": f"msg_{at}", "type": "message", "status": "in_progress", "role": "assistant"}
                item["content"] = []
                text_part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                part = text_part if kind == "text" else {"type": "refusal", "refusal": ""}
                added, index = "response.content_part.added", {"content_index": 0}
            yield self.frame("response.output_item.added", output_index=at, item=item)
            yield self.frame(added, item_id=item["id"], output_index=at, **index, part=part)
        _, at, pieces = self.said
        pieces.append(text)
        if kind == "reasoning":
            where: dict[str, Any] = {"item_id": f"rs_{at}", "output_index": at, "summary_index": 0}
            yield self.frame("response.reasoning_summary_text.delta", **where, delta=text)
        else:
            where = {"item_id": f"msg_{at}", "output_index": at, "content_index": 0}
            type_ = "response.output_text.delta" if kind == "text" else "response.refusal.delta"
            yield self.frame(type_, **where, delta=text, **({"logprobs": []} if kind == "text" else {}))

    def hush(self, status: str = "completed") -> Iterator[bytes]:
        """End the open message or thought."""
        if self.said is None:
            return
        kind, at, pieces = self.said
        text, self.said = "".join(pieces), None
        if kind == "reasoning":
            where: dict[str, Any] = {"item_id": f"rs_{at}", "output_index": at, "summary_index": 0}
            part: dict[str, Any] = {"type": "summary_text", "text": text}
            yield self.frame("response.reasoning_summary_text.done", **where, text=text)
            yield self.frame("response.reasoning_summary_part.done", **where, part=part)
            item: dict[str, Any] = {"id": f"rs_{at}", "type": "reasoning", "summary": [part]}
        else:
            where = {"item_id": f"msg_{at}", "output_index": at, "content_index": 0}
            if kind == "text":
                part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
                yield self.frame("response.output_text.done", **where, text=text, logprobs=[])
            else:
                part = {"type": "refusal", "refusal": text}
                yield self.frame("response.refusal.done", **where, refusal=text)
            yield self.frame("response.content_part.done", **where, part=part)
            item = {"id": f"msg_{at}", "type": "message", "status": status, "role": "assistant", "content": [part]}
        self.output.append(item)
        yield self.frame("response.output_item.done", output_index=at, item=item)

    def begin(self, step: Begin) -> Iterator[bytes]:
        yield from self.hush()
        at = self.place()
        item = {"id": f"fc_{at}", "type": "function_call", "status": "in_progress", "call_id": step.id}
        item |= {"name": step.name, "arguments": ""}
        self.calls[step.number] = at, dict(item)
        yield self.frame("response.output_item.added", output_index=at, item=item)

    def arguments(self, step: Arguments) -> Iterator[bytes]:
        at, item = self.calls[step.number]
        item["arguments"] += step.text
        where = {"item_id": item["id"], "output_index": at}
        yield self.frame("response.function_call_arguments.delta", **where, delta=step.text)

    def end(self, number: int) -> Iterator[bytes]:
        at, item = self.calls.pop(number)
        item["status"] = "completed"
        where = {"item_id": item["id"], "output_index": at}
        said = {"arguments": item["arguments"], "name": item["name"]}
        yield self.frame("response.function_call_arguments.done", **where, **said)
        self.output.append(item)
        yield self.frame("response.output_item.done", output_index=at, item=item)

    def finish(self, step: Finish) -> Iterator[bytes]:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(step.reason)
        status = "incomplete" if reason else "completed"
        yield from self.hush(status)
        for number in [] if reason else [*self.calls]:
            yield from self.end(number)
        usage = {
            "input_tokens": _INPUT,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": _OUTPUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": _INPUT + _OUTPUT,
        }
        details = {"reason": reason} if reason else None
        counted = usage if step.usage else None
        whole = self.response(status, incomplete_details=details, usage=counted)
        yield self.frame(f"response.{status}", response=whole)


def _responses(steps: Iterable[Step]) -> Iterator[bytes]:
    server = _Responses()
    for type_ in ("response.created", "response.in_progress"):
        yield server.frame(type_, response={**server.response("in_progress"), "output": []})
    for step in steps:
        match step:
            case Say(kind, text):
                yield from server.say(kind, text)
            case Begin():
                yield from server.begin(step)
            case Arguments():
                yield from server.arguments(step)
            case End(number):
                yield from server.end(number)
            case Finish():
                yield from server.finish(step)
            case Fail(message, code):
                failed = server.response("failed", error={"code": code, "message": message})
                yield server.frame("response.failed", response=failed)
            case Done():
                yield b"data: [DONE]\n\n"


# -- Messages ---------------------------------------------------------------------------------------------------------


class _Messages:
    """The frames of a Messages server, whose blocks may be open at the same time."""

    def __init__(self) -> None:
        self.blocks = 0
        self.said: tuple[str, int] | None = None
        self.calls: dict[int, int] = {}

    @staticmethod
    def frame(type_: str, **members: Any) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (type_.encode(), dumps({"type": type_, **members}))

    def say(self, kind: str, text: str) -> Iterator[bytes]:
        thought = kind == "reasoning"
        if self.said is None or self.said[0] != kind:
            yield from self.hush()
            self.said = kind, self.blocks
            self.blocks += 1
            block = {"type": "thinking", "thinking": "", "signature": ""} if thought else {"type": "text", "text": ""}
            yield self.frame("content_block_start", index=self.said[1], content_block=block)
        delta = {"type": "thinking_delta", "thinking": text} if thought else {"type": "text_delta", "text": text}
        yield self.frame("content_block_delta", index=self.said[1], delta=delta)

    def hush(self) -> Iterator[bytes]:
        if self.said is not None:
            kind, at = self.said
            self.said = None
            if kind == "reasoning":
                delta = {"type": "signature_delta", "signature": "c2lnbmF0dXJl"}
                yield self.frame("content_block_delta", index=at, delta=delta)
            yield self.frame("content_block_stop", index=at)

    def begin(self, step: Begin) -> Iterator[bytes]:
        yield from self.hush()
        at = self.calls[step.number] = self.blocks
        self.blocks += 1
        block: dict[str, Any] = {"type": "tool_use", "id": step.id, "name": step.name, "input": {}}
        yield self.frame("content_block_start", index=at, content_block=block)

    def arguments(self, step: Arguments) -> Iterator[bytes]:
        delta = {"type": "input_json_delta", "partial_json": step.text}
        yield self.frame("content_block_delta", index=self.calls[step.number], delta=delta)

    def end(self, number: int) -> Iterator[bytes]:
        yield self.frame("content_block_stop", index=self.calls.pop(number))

    def finish(self, step: Finish) -> Iterator[bytes]:
        yield from self.hush()
        for number in [*self.calls]:
            yield from self.end(number)
        words = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
        usage = {"output_tokens": _OUTPUT} if step.usage else {}
        delta = {"stop_reason": words[step.reason], "stop_sequence": None}
        yield self.frame("message_delta", delta=delta, usage=usage)
        yield self.frame("message_stop")


def _messages(steps: Iterable[Step]) -> Iterator[bytes]:
    server = _Messages()
    counted = not any(isinstance(step, Finish) and not step.usage for step in steps)
    message: dict[str, Any] = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
    }
    usage = {"input_tokens": _INPUT, "output_tokens": 1} if counted else {}
    ends = {"stop_reason": None, "stop_sequence": None}
    yield server.frame("message_start", message={**message, **ends, "usage": usage})
    for step in steps:
        match step:
            case Say(kind, text):
                yield from server.say(kind, text)
            case Begin():
                yield from server.begin(step)
            case Arguments():
                yield from server.arguments(step)
            case End(number):
                yield from server.end(number)
            case Finish():
                yield from server.finish(step)
            case Fail(message_text, code):
                error = {"type": "api_error", "message": message_text, "code": code}
                yield server.frame("error", error=error)
            case Done():
                yield b"data: [DONE]\n\n"


# -- the stories ------------------------------------------------------------------------------------------------------


def _text(*pieces: str) -> list[Step]:
    return [Say("text", piece) for piece in pieces]


def _call(number: int, call_id: str, name: str, *pieces: str) -> list[Step]:
    return [Begin(number, call_id, name), *(Arguments(number, piece) for piece in pieces), End(number)]


_HELLO: Final = _text("Hel", "lo ", "there")
_LIST: Final = _call(0, "call_a", "list_files", '{"path"', ':"a"}')
_READ: Final = _call(1, "call_b", "read_file", '{"path":', '"b.txt"}')
_HALF: Final[list[Step]] = [Begin(0, "call_a", "list_files"), Arguments(0, '{"path"'), Arguments(0, ':"a')]
_A: Final = ("call_a", "list_files", '{"path":"a"}')
_B: Final = ("call_b", "read_file", '{"path":"b.txt"}')
_TALK: Final = Expected(text="Hello there", order=("text",))
_CUT: Final = Expected(text="Hello there", ending="error", order=("text",))
_TURNS: Final[list[Step]] = [
    Begin(0, "call_a", "list_files"),
    Arguments(0, '{"path"'),
    Begin(1, "call_b", "read_file"),
    Arguments(1, '{"path":'),
    Arguments(0, ':"a"}'),
    Arguments(1, '"b.txt"}'),
    End(0),
    End(1),
]

#: The fifteen of the comparison with other translators, and three more.
STREAMS: Final = (
    Scripted("text", [*_HELLO, Finish("stop")], _TALK),
    Scripted("clean EOF in text", _HELLO, _CUT),
    Scripted("clean EOF in arguments", [*_HELLO, *_HALF], _CUT),
    Scripted("reset in arguments", [*_HELLO, *_HALF], _CUT, cause="reset"),
    Scripted("in-band error", [*_HELLO, Fail("the model crashed", "boom")], _CUT),
    Scripted(
        "length in a call",
        [*_HELLO, *_HALF, Finish("length")],
        Expected("Hello there", ending="length", order=("text",)),
    ),
    Scripted("two calls", [*_LIST, *_READ, Finish("tool_calls")], Expected(calls=(_A, _B), ending="tool_calls")),
    Scripted("interleaved calls", [*_TURNS, Finish("tool_calls")], Expected(calls=(_A, _B), ending="tool_calls")),
    Scripted(
        "reasoning, text, call",
        [Say("reasoning", "Let me "), Say("reasoning", "see."), *_HELLO, *_LIST, Finish("tool_calls")],
        Expected("Hello there", "Let me see.", calls=(_A,), ending="tool_calls", order=("reasoning", "text", "call_a")),
    ),
    Scripted(
        "text after call",
        [*_LIST, *_text("Do", "ne"), Finish("tool_calls")],
        Expected("Done", calls=(_A,), ending="tool_calls", order=("call_a", "text")),
    ),
    Scripted(
        "call without arguments",
        [*_call(0, "call_a", "list_files", "{}"), Finish("tool_calls")],
        Expected(calls=(("call_a", "list_files", "{}"),), ending="tool_calls"),
    ),
    Scripted("finish stop with a call", [*_LIST, Finish("stop")], Expected(calls=(_A,), ending="tool_calls")),
    Scripted("content_filter", [*_HELLO, Finish("content_filter")], replace(_TALK, ending="content_filter")),
    Scripted(
        "refusal",
        [Say("refusal", "I can"), Say("refusal", "not."), Finish("stop")],
        Expected(refusal="I cannot."),
        without=frozenset({"messages"}),
    ),
    Scripted("no usage chunk", [*_HELLO, Finish("stop", usage=False)], _TALK),
    Scripted("plain call", [*_LIST, Finish("tool_calls")], Expected(calls=(_A,), ending="tool_calls")),
    Scripted("cut that ends in [DONE]", [*_HELLO, *_HALF, Done()], _CUT),
    Scripted(
        "zero argument bytes",
        [*_call(0, "call_a", "list_files"), Finish("tool_calls")],
        Expected(calls=(("call_a", "list_files", "{}"),), ending="tool_calls"),
    ),
)


_C: Final = ("call_c", "write_file", '{"text":"c"}')
_WRITE: Final = _call(2, "call_c", "write_file", '{"text":"c"}')
_CROSSWISE: Final[list[Step]] = [*_TURNS[:-2], End(1), End(0)]
_FILTERED: Final = [*_HELLO, *_HALF, Finish("content_filter")]
_THOUGHT: Final = [Say("reasoning", "Let me "), Say("reasoning", "see.")]

#: More of our own.
OWN: Final = (
    Scripted(
        "text in many alphabets",
        [*_text("Grüß", " dich, ", "\u4f60\u597d \U0001f600"), Finish("stop")],
        Expected("Grüß dich, \u4f60\u597d \U0001f600", order=("text",)),
    ),
    Scripted(
        "text with quotes and line ends",
        [*_text('"a"\n', "\\b\t", "%s %d"), Finish("stop")],
        Expected('"a"\n\\b\t%s %d', order=("text",)),
    ),
    Scripted("length in text", [*_HELLO, Finish("length")], replace(_TALK, ending="length")),
    Scripted("reset in text", _HELLO, _CUT, cause="reset"),
    Scripted(
        "clean EOF in a thought", _THOUGHT, Expected(reasoning="Let me see.", ending="error", order=("reasoning",))
    ),
    Scripted("error in arguments", [*_HELLO, *_HALF, Fail("the model crashed", "boom")], _CUT),
    Scripted("content_filter in a call", _FILTERED, replace(_TALK, ending="content_filter")),
    Scripted(
        "calls that end crosswise", [*_CROSSWISE, Finish("tool_calls")], Expected(calls=(_A, _B), ending="tool_calls")
    ),
    Scripted(
        "three calls",
        [*_LIST, *_READ, *_WRITE, Finish("tool_calls")],
        Expected(calls=(_A, _B, _C), ending="tool_calls"),
    ),
    Scripted(
        "arguments in single characters",
        [*_call(0, "call_a", "list_files", *'{"path":"a"}'), Finish("tool_calls")],
        Expected(calls=(_A,), ending="tool_calls"),
    ),
    Scripted(
        "text, call, text, call",
        [*_HELLO, *_LIST, *_text("and"), *_READ, Finish("tool_calls")],
        Expected("Hello thereand", calls=(_A, _B), ending="tool_calls", order=("text", "call_a", "text", "call_b")),
    ),
    Scripted(
        "two thoughts",
        [*_THOUGHT, *_text("a"), *_THOUGHT, *_text("b"), Finish("stop")],
        Expected("ab", "Let me see." * 2, order=("reasoning", "text", "reasoning", "text")),
    ),
    Scripted(
        "thought and call",
        [*_THOUGHT, *_LIST, Finish("tool_calls")],
        Expected(reasoning="Let me see.", calls=(_A,), ending="tool_calls", order=("reasoning", "call_a")),
    ),
    Scripted("thought alone", [*_THOUGHT, Finish("stop")], Expected(reasoning="Let me see.", order=("reasoning",))),
    Scripted(
        "refusal after text",
        [*_HELLO, Say("refusal", "No."), Finish("stop")],
        Expected("Hello there", refusal="No.", order=("text", "refusal")),
        without=frozenset({"messages"}),
    ),
    Scripted(
        "call without usage", [*_LIST, Finish("tool_calls", usage=False)], Expected(calls=(_A,), ending="tool_calls")
    ),
    Scripted(
        "id that is too long",
        [*_call(0, "call_" + "x" * 100, "list_files", '{"path":"a"}'), Finish("tool_calls")],
        Expected(calls=(("call_" + "x" * 100, *_A[1:]),), ending="tool_calls"),
    ),
    Scripted(
        "cut in text that ends in [DONE]",
        [*_text("Hel"), *_HALF, Done()],
        Expected("Hel", ending="error", order=("text",)),
    ),
)


def named(name: str) -> Scripted:
    """Return the stream of this name."""
    return next(one for one in (*STREAMS, *OWN) if one.name == name)
