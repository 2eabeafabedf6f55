"""Read one attempt of a chat stream: upstream frames to canonical chunks, their events, and named repairs.

`Q15` is a row of the dialect catalogue. A repair edits a copy of the parsed chunk; a frame that needs none passes as
the bytes object that came. What a frame means may depend on earlier frames (which role was sent, which call has an
index), so one `Repair` follows one attempt. It never raises on upstream data.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ..core.json_text import ABSENT, as_object, is_list, is_object, parse
from ..core.limits import CHUNKS_WAITING_MAX, UNDELIVERED_BYTES_MAX
from ..core.model import Event, ForeignFrame, ResponseStarted, Terminator, UpstreamError, Usage
from ..emission.dialect import Context, Step
from ..emission.frames import Out
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from . import read
from .content import Choices
from .draft import Draft
from .errors import Failure, choices_of, chunks_of, delivers, error_of, failure_of, has_delta, has_message, news_of
from .hermes import AgentTools, Retold, card_of, ended_by_length, failure_of_agent
from .write import CHUNK, DONE, PROGRESS_EVENT, ChatWriter, Envelope, chunk

__all__ = ["Chat", "Repair"]

_TERMINATOR: Final = b"[DONE]"
#: Top-level lists that Perplexity repeats on every chunk (Q87).
_SENT_ONCE: Final = ("citations", "search_results")
#: The SSE field of llama.cpp through 2025 and GPUStack (Q92); every SDK silently ignores such a line.
_ERROR_FIELD: Final = re.compile(rb"(?:^(?:\xef\xbb\xbf)?|[\r\n])error: ?(\{[^\r\n]*\})")
#: A block of nothing but comments and fields that dispatch nothing.
_SILENT_BLOCK: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:(?::|(?:event|id|retry)(?=[:\r\n]))[^\r\n]*+[\r\n]++|[\r\n]++)*+"
)
#: A line that lacks the name of its field, and is not a field of another protocol.
_UNFRAMED: Final = re.compile(rb'(?:^|[\r\n])[ \t]*(?:[{"]|data)')
#: How a line of a stream may begin; `rest` that begins otherwise never was one (Q93, Q96).
_LINE_OF_STREAM: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:data|event|id|retry|)(?::|\Z)")


class _Frame(NamedTuple):
    """A frame with its payload parsed, and how it is reported if it passes."""

    n: int
    raw: bytes | None
    payload: bytes
    value: Any
    #: The repair that rewrites the frame around its payload; empty if the frame is canonical.
    repair: str = ""
    event: bytes = b""

    def out(self, value: Any, repair: str = "", *, payload: bytes | None = None) -> Out:
        """Return the frame to send: as it came, or rewritten."""
        if repair or payload is None:
            return Out(self.n, value, came=self.raw, repair=repair)
        raw = None if self.repair else self.raw
        return Out(self.n, value, raw=raw, payload=payload, came=self.raw, repair=self.repair)


class _Waiting(NamedTuple):
    """A chunk that is repaired but for its `{}`, which may be a seed: the chunks after it decide (Q20)."""

    draft: Draft
    out: Out
    size: int


class Repair:
    """The reader of one attempt."""

    def __init__(self, context: Context) -> None:
        settings, facts = context.settings, context.facts
        self._context = context
        self._live = context.live
        self._ledger = context.ledger
        self._envelope = Envelope()
        self._choices = Choices(facts, settings, context.stream_id)
        self._agent = AgentTools(context.stream_id)
        self._retold = Retold()
        self._sent_once: dict[str, Any] = {}
        self._waiting: list[_Waiting] = []
        self._last_n = 0
        #: A chunk has gone out.
        self._started = False
        #: Something beyond a role has come.
        self._said = False
        #: Some bytes of the frame under repair were not UTF-8.
        self._garbled = False
        self._hermes = settings.hermes
        self._synthesise = settings.synthesise or not facts.stream
        #: The same chunk may mean something else when it comes again.
        self._unusual = settings.cumulative or settings.hermes

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def frame(self, record: Record) -> list[Step]:
        """Read one frame; chunks that were waiting for it come out first."""
        frame = record.frame()
        self._last_n = record.n
        self._garbled = False
        if frame.payload is None:
            steps = self._without_payload(record.n, frame)
        else:
            value = record.value if record.value is not ABSENT else parse(frame.payload)
            steps = self._payload(record.n, frame, frame.payload, value)
        return [*self._release(), *steps] if steps and self._waiting else steps

    def rest(self, n: int, data: bytes) -> list[Step]:
        """Read the bytes after the last frame: a last `[DONE]` counts (Q106), so does an unframed answer (Q93)."""
        self._last_n = n
        payload = parse_block(data, first=True).payload
        if payload is not None and payload.strip(b" ") == _TERMINATOR:
            return [*self.flush(n), Step(n, (Terminator(n=n),), Out(n, raw=DONE, repair="framing"))]
        if failure := _error_field(data):
            return [*self.flush(n), self._failure(n, failure, Out(n, failure.value, repair="error_field"))]
        if _LINE_OF_STREAM.match(data):
            return self.flush(n)
        return [*self.flush(n), *self.body(n, data)]

    def body(self, n: int, data: bytes) -> list[Step]:
        """Read a whole answer where a stream was due (Q93, Q96): an error, a completion, or neither."""
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):
            return []  # the beginning of one: a cut like any other
        answer: dict[str, Any] = as_object(value)
        if answer.get("error"):
            failure = failure_of(answer)
            return [self._failure(n, failure, Out(n, failure.value, repair="unframed"))]
        if self._choices.started or not self._synthesise or not any(map(has_message, choices_of(answer))):
            return [_foreign(n, "not_a_stream")]
        return [_foreign(n, "synthesised"), *self._synthesised(n, answer), *self.flush(n)]

    def flush(self, n: int) -> list[Step]:  # noqa: ARG002 - the last frame is what it belongs to
        """Return what waited for another frame."""
        return [*self._release(), *self._held_text(self._last_n)]

    def supply(self, n: int) -> list[Step]:
        """Return the finishes that `[DONE]` came without, after whole content: clients loop or fail otherwise (Q37)."""
        live = self._live
        steps: list[Step] = []
        for index in live.unfinished if live.said_whole else ():
            live.flags["no_finish"] = None
            calls = live.choice(index).calls
            reason = "stop" if not calls else "function_call" if list(calls) == [read.LEGACY_CALL] else "tool_calls"
            envelope = self._own_envelope()
            steps.append(self._ours(n, "finish_supplied", chunk(envelope, index, {}, reason)))
        return steps

    # -- the frame ----------------------------------------------------------------------------------------------------

    def _without_payload(self, n: int, frame: Frame) -> list[Step]:
        if failure := _error_field(frame.raw):
            out = Out(n, failure.value, came=frame.raw, repair="error_field")
            return [*self._held_text(n), self._failure(n, failure, out)]
        if _SILENT_BLOCK.fullmatch(frame.raw):
            self._withheld(n, frame, "comment")
            return []
        self._withheld(n, frame, "unframed")
        steps = self.body(n, frame.raw)
        if any(isinstance(event, UpstreamError) for step in steps for event in step.events):
            return steps
        lost = self._choices.damaged(n, frame.raw) if _UNFRAMED.search(frame.raw) else ()
        return [*steps, _foreign(n, "unframed", lost)] if lost else steps

    def _payload(self, n: int, frame: Frame, payload: bytes, value: Any) -> list[Step]:
        repair = ""
        if payload.strip(b" ") == _TERMINATOR:
            repair = "" if frame.raw == DONE else "framing"
            done = Out(n, raw=frame.raw if not repair else DONE, came=frame.raw, repair=repair)
            return [*self._held_text(n), Step(n, (Terminator(n=n),), done)]
        if self._hermes and frame.event == PROGRESS_EVENT and is_object(value):
            self._retold.turn()
            return [self._progress(n, frame, value)]
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value = parse(payload)
            if value is not ABSENT:
                self._garbled, repair = True, "invalid_utf8"
        elif not frame.canonical:
            repair = "framing"
        if repair:
            payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
        given = _Frame(n, frame.raw, payload, value, repair, frame.event)
        if is_object(value) and not frame.event.startswith(b"hermes."):  # trusted on its own routes only
            return self._object(given, value)
        if frame.event == b"error":  # Q90, in words
            failure = failure_of({"error": value if isinstance(value, str) else payload.decode()})
            return [*self._held_text(n), self._failure(n, failure, given.out(failure.value, "error_shape"))]
        if value is not ABSENT:
            self._withheld(n, frame, "foreign")
            return [_foreign(n, "foreign")]
        if payload.strip()[:1] in (b"", b":"):  # Q98, Q99: keepalives
            self._withheld(n, frame, "empty_data")
            return []
        self._withheld(n, frame, "not_json")
        return [_foreign(n, "not_json", self._choices.damaged(n, payload))]

    def _object(self, frame: _Frame, value: dict[str, Any]) -> list[Step]:
        n = frame.n
        given: Any = value.get("choices", ABSENT)
        choices = choices_of(value)
        usable = is_list(given) and (not given or any(map(is_object, choices)))
        failure = error_of(value, frame.event, usable=usable)
        if failure is not None and self._hermes:
            if ended_by_length(value):
                return self._length(frame, value)
            failure = failure_of_agent(failure, value)
        if failure is not None:
            return self._failed_chunk(frame, value, failure, choices if usable else [])
        if not any(map(has_delta, choices)) and any(map(has_message, choices)):
            self._ledger.frame(n, "whole_object", frame.raw, None)
            return self._news(n, value) if self._said else self._synthesised(n, value)
        usage = value.get("usage")
        counts = is_object(usage) and bool(usage)
        listed = not (given is None or (given is ABSENT and counts))  # Q48
        if not usable and listed:
            self._ledger.frame(n, "foreign", frame.raw, None)
            lost = self._choices.damaged(n, frame.payload) if is_object(given) else ()  # else it is another protocol's
            return [_foreign(n, "foreign", lost)]
        if not choices and not counts:
            self._ledger.frame(n, "choiceless", frame.raw, None)  # Azure's filter results come first (Q46)
            return []
        draft = self._draft(n, value if listed else {**value, "choices": list[Any]()}, frame.payload)
        if not listed:
            draft.set("choices_null", (), "choices", list[Any]())
        return self._chunk(draft, frame.out(value, payload=frame.payload))

    def _draft(self, n: int, value: dict[str, Any], payload: bytes) -> Draft:
        return Draft(n, value, self._envelope, payload)

    def _chunk(self, draft: Draft, out: Out) -> list[Step]:
        choices: list[Any] = draft.value["choices"]
        self._repair_envelope(draft)
        self._choices.repair(draft)
        says = any(map(delivers, choices))
        self._said = self._said or says
        if self._garbled:
            self._choices.garbled(draft)
        if self._hermes:
            self._look_for_retries(draft)
        undecided = not (draft.finished or draft.failure) and (bool(draft.seeds) or (bool(self._waiting) and not says))
        if undecided:
            size = len(out.payload or b"")
            full = len(self._waiting) == CHUNKS_WAITING_MAX
            if not full and sum(one.size for one in self._waiting) + size <= UNDELIVERED_BYTES_MAX:
                self._waiting.append(_Waiting(draft, out, size))
                return []
        if self._waiting:
            return [*self._release(), *self._released(draft, out)]
        return self._released(draft, out)

    def _look_for_retries(self, draft: Draft) -> None:
        """Note text that comes again; it is not changed, because a text may well repeat itself."""
        for choice in filter(has_delta, draft.value["choices"]):
            text = choice["delta"].get("content")
            if isinstance(text, str) and self._retold.says_again(text):
                draft.flags.append("text_repeated")
                draft.events.append(ForeignFrame(n=draft.n, why="text_repeated"))

    def _release(self) -> list[Step]:
        waiting, self._waiting = self._waiting, []
        return [step for one in waiting for step in self._released(one.draft, one.out)]

    def _released(self, draft: Draft, out: Out) -> list[Step]:
        """Return the steps of a chunk, and those of our own frames around it."""
        n = draft.n
        for settle in draft.seeds:
            settle()
        plain = not self._unusual and self._choices.plain(draft)
        if plain or not draft.changed:
            out.edit(draft.edits)
            return [self._step(out, draft.events, plain=plain)]
        for flag in draft.flags:
            self._ledger.noted(n, flag)
        out.edit(draft.edits)
        steps = [self._ours(n, *ours) for ours in draft.before]
        steps.append(self._step(out, draft.events))
        steps += [self._ours(n, *ours) for ours in draft.after]
        if draft.failure:
            message = f"the upstream ended the answer with finish_reason {draft.failure!r}"
            failure = Failure(
                {"error": {"message": message, "type": "upstream_error", "code": "finish_error"}},
                message,
                "finish_error",
            )
            out = Out(n, failure.value, repair="finish_failure")
            steps += [*self._held_text(n), self._failure(n, failure, out)]
        return steps

    def _step(self, out: Out, extra: Iterable[Event] = (), *, plain: bool = False) -> Step:
        """Return the step of a canonical chunk."""
        value = out.value
        events = [*extra, *read.events(value, out.n)]
        if not self._started:
            self._started = True
            events.insert(0, ResponseStarted(n=out.n, id=value["id"], model=value.get("model", "")))
        choices = [choice["index"] for choice in value["choices"]]
        content = any(choice.get("finish_reason") or read.says_content(choice["delta"]) for choice in value["choices"])
        return Step(out.n, events, out, content, choices, plain)

    def _ours(self, n: int, repair: str, value: dict[str, Any]) -> Step:
        return self._step(Out(n, value, repair=repair))

    def _held_text(self, n: int) -> list[Step]:
        """Return text that was held as half a tag, before the stream closes."""
        return [self._ours(n, "think", value) for value in self._choices.held(self._envelope)]

    def _repair_envelope(self, draft: Draft) -> None:
        value, envelope = draft.value, self._envelope
        given = value.get("id")
        if not envelope.id:
            envelope.id = given if isinstance(given, str) and given else f"chatcmpl-{self._context.stream_id}"
        if given != envelope.id:
            draft.set("id", (), "id", envelope.id)  # Q53
        if value.get("object") != CHUNK:
            draft.set("object", (), "object", CHUNK)  # Q52
        given = value.get("created", 0)  # Q54, Q57: one integer, the first that is not zero
        envelope.created = envelope.created or _integer(given)
        if given != envelope.created or type(given) is not int:
            draft.set("created", (), "created", envelope.created)
        given = value.get("model", "")  # Q55: the first that is not empty; until then the one that was asked for
        if not envelope.model:
            envelope.model = given if isinstance(given, str) and given else self._context.facts.model
        if given != envelope.model:
            draft.set("model", (), "model", envelope.model)
        for key in _SENT_ONCE:
            if key in value:
                if key in self._sent_once and self._sent_once[key] == value[key]:
                    draft.drop("sent_once", (), key)
                else:
                    draft.first = True
                self._sent_once[key] = value[key]

    def _own_envelope(self) -> Envelope:
        """Return the stream's envelope or, while no chunk has come, one made from its tape."""
        known, context = self._envelope, self._context
        return Envelope(
            known.id or f"chatcmpl-{context.stream_id}",
            known.model or context.facts.model,
            known.created or context.created,
        )

    def _withheld(self, n: int, frame: Frame, repair: str) -> None:
        self._ledger.frame(n, repair, frame.raw, None)

    # -- tools of an agent --------------------------------------------------------------------------------------------

    def _progress(self, n: int, frame: Frame, value: dict[str, Any]) -> Step:
        """Read a frame about a tool that the upstream runs itself: what it did cannot be undone by another attempt."""
        event = None if self._live.finished else self._agent.event(n, value, self._live, self._context.answered)
        if event is None or not self._context.settings.tool_events or event.name.startswith("_"):
            self._withheld(n, frame, "progress_withheld")
            return Step(n, () if event is None else (event,), delivers=event is not None)
        self._envelope = self._own_envelope()
        card = card_of(value, event, self._envelope)
        out = Out(n, card, came=frame.raw, repair="progress", event=PROGRESS_EVENT)
        return Step(n, (event,), out, delivers=True)

    def _length(self, frame: _Frame, value: dict[str, Any]) -> list[Step]:
        """Read the end of an agent's answer by length, with an error that would make every SDK raise."""
        draft = self._draft(frame.n, value, frame.payload)
        draft.drop("length_error", (), "error")
        draft.events.append(ForeignFrame(n=frame.n, why="output_truncated"))
        return self._chunk(draft, frame.out(value, payload=frame.payload))

    # -- errors and whole answers -------------------------------------------------------------------------------------

    def _failure(self, n: int, failure: Failure, out: Out) -> Step:
        events: list[Event] = [] if failure.usage is None else [Usage(n=n, counts=failure.usage)]
        events.append(UpstreamError(n=n, message=failure.message, code=failure.code))
        # An agent has tried again itself; on an HTTP error LangChain.js would too, seven times.
        return Step(n, events, out, delivers=self._hermes)

    def _failed_chunk(self, frame: _Frame, value: dict[str, Any], failure: Failure, choices: list[Any]) -> list[Step]:
        """Read an error that comes with a chunk (Q89, hermes): what the chunk delivers goes out first."""
        n = frame.n
        if not any(map(delivers, choices)):
            same = failure.value == value
            out = frame.out(value, payload=frame.payload) if same else frame.out(failure.value, "error_shape")
            return [*self._held_text(n), self._failure(n, failure, out)]
        open_ended = [
            {**choice, "finish_reason": None, "finishReason": None} if is_object(choice) else choice
            for choice in choices
        ]
        draft = self._draft(n, {**value, "choices": open_ended}, frame.payload)
        if "error" in value:
            draft.drop("error_apart", (), "error")
        for place, choice in enumerate(choices):
            if is_object(choice) and choice.get("finish_reason", "") is not None:
                draft.set("error_apart", ("choices", place), "finish_reason", None)
        steps = self._chunk(draft, frame.out(value, payload=frame.payload))
        out = Out(n, failure.value, repair="error_apart")
        return [*steps, *self._held_text(n), self._failure(n, failure, out)]

    def _news(self, n: int, value: dict[str, Any]) -> list[Step]:
        return self._instead(n, "whole_object", news_of(value, self._choices.unfinished))

    def _synthesised(self, n: int, answer: dict[str, Any]) -> list[Step]:
        return self._instead(n, "synthesised", chunks_of(answer, one=self._context.facts.choices == 1))

    def _instead(self, n: int, repair: str, chunks: list[dict[str, Any]]) -> list[Step]:
        """Return chunks of ours in place of what came, repaired like any other."""
        steps: list[Step] = []
        for members in chunks:
            value = {**self._envelope.members(), **members}
            # A whole answer has no seeds to wait for.
            steps += [*self._chunk(self._draft(n, value, b""), Out(n, value, repair=repair)), *self._release()]
        return steps


class Chat:
    """The chat completions dialect."""

    def reader(self, context: Context) -> Repair:
        """Return a reader for one attempt."""
        return Repair(context)

    def writer(self, context: Context) -> ChatWriter:
        """Return a writer for one attempt."""
        return ChatWriter(context)


def _foreign(n: int, why: str, lost: Iterable[Event] = ()) -> Step:
    """Return a step without a frame: what was withheld, and the calls that are damaged with it."""
    return Step(n, [ForeignFrame(n=n, why=why), *lost])


def _error_field(raw: bytes) -> Failure | None:
    """Return an error in an SSE field of that name (Q92)."""
    field = _ERROR_FIELD.search(raw)
    value = parse(field[1]) if field else None
    return failure_of({"error": value}) if is_object(value) else None


def _integer(given: Any) -> int:
    """Return the integer in a number or a text, or 0."""
    try:
        return 0 if isinstance(given, bool) else int(given if isinstance(given, int) else float(given))
    except (TypeError, ValueError, OverflowError):
        return 0
