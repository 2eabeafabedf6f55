"""Read one attempt of a chat stream: upstream frames to canonical chunks, their events, and named repairs.

`Q15` is a row of the dialect catalogue. A repair edits a copy of the parsed chunk; a frame that needs none passes as
the bytes object that came. What a frame means may depend on earlier frames (which role was sent, which call has an
index), so one `Repair` follows one attempt. It never raises on upstream data.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..core import limits
from ..core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, parse, values_at_most
from ..core.lifecycle import STATUS_ON_WIRE, State
from ..core.model import Event, ForeignFrame, ResponseStarted, Terminator, ToolProgress, UpstreamError, Usage
from ..emission.dialect import Context, Reader, Step
from ..emission.frames import Out
from ..emission.words import PROGRESS_EVENT
from ..folds.wire import short
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from .chunk import CHUNK, DONE, LEGACY_CALL, Draft, chunk, envelope, events, has, says_content
from .content import Choices, Retold

__all__ = ["Repair"]

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

#: Members of a chunk that mean something to clients, and those that we write.
_CARD_KEYS: Final = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "error", "base_resp", "tool", "toolCallId", "status"}
)


class Repair(Reader):
    """The reader of one attempt."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: What every chunk repeats, from the first one that contains it.
        self._envelope = envelope()
        self._choices = Choices(context)
        #: An agent's id of a call to ours: for one answer it asks its model many times, and some providers count their
        #: calls from 0 each time.
        self._agent_ids: dict[str, str] = {}
        self._retold = Retold()
        self._sent_once: dict[str, Any] = {}
        #: Chunks that are repaired but for a `{}`, which may be a seed: the chunks after it decide (Q20).
        self._waiting: list[Draft] = []
        self._last_n = 0
        #: A chunk has gone out.
        self._started = False
        #: Something beyond a role has come.
        self._said = False
        #: Some bytes of the frame under repair were not UTF-8.
        self._garbled = False
        self._hermes = context.settings.hermes
        #: The same chunk may mean something else when it comes again.
        self._unusual = context.settings.cumulative or self._hermes

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def frame(self, record: Record) -> list[Step]:
        """Read one frame; chunks that were waiting for it come out first."""
        frame = record.frame()
        self._last_n = record.n
        self._garbled = False
        if frame.payload is None:
            steps = self._without_payload(record.n, frame)
        else:
            steps = self._payload(record.n, frame, frame.payload, record.value)
        return [*self._release(), *steps] if steps and self._waiting else steps

    def rest(self, n: int, data: bytes) -> list[Step]:
        """Read the bytes after the last frame: a last `[DONE]` counts (Q106), so does an unframed answer (Q93)."""
        self._last_n = n
        steps = self.flush()
        payload = parse_block(data, first=True).payload
        if payload is not None and payload.strip(b" ") == _TERMINATOR:
            return [*steps, Step(n, (Terminator(n=n),), Out(n, raw=DONE, repair="framing"))]
        if error := _error_field(data):
            return [*steps, *self._failed(Out(n, error, repair="error_field"))]
        return steps if _LINE_OF_STREAM.match(data) else [*steps, *self.body(n, data)]

    def body(self, n: int, data: bytes) -> list[Step]:
        """Read a whole answer where a stream was due (Q93, Q96): an error, a completion, or neither."""
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):
            # The beginning of one is a cut like any other; one of too many values (logprobs) stays unread.
            self._context.live.overflow |= values_at_most(data) > limits.JSON_VALUES_MAX
            return []
        answer: dict[str, Any] = as_object(value)
        if answer.get("error"):
            return self._failed(Out(n, _error(answer["error"]), repair="unframed"), as_object(answer.get("usage")))
        wanted = self._context.settings.synthesise or not self._context.facts.stream
        whole = any(has(choice, "message") for choice in as_list(answer.get("choices")))
        if self._choices.started or not wanted or not whole:
            return [_foreign(n, "not_a_stream")]
        marked = [_foreign(n, "synthesised")] if self._context.facts.stream else []
        return [*marked, *self._instead(n, "synthesised", answer), *self.flush()]

    def flush(self) -> list[Step]:
        """Return what waited for another frame; it belongs to the last one."""
        return [*self._release(), *self._held_text(self._last_n)]

    def supply(self, n: int) -> list[Step]:
        """Return the finishes missing before `[DONE]` if the content is whole: clients loop or fail without (Q37)."""
        live = self._context.live
        steps: list[Step] = []
        for index in live.unfinished if live.said_whole and not self._choices.unclear else ():
            calls, finish = live.choice(index).calls, live.choice(index).finish
            if not finish:  # only its last calls lack one
                live.flags["no_finish"] = None
            reason = "stop" if not calls else "function_call" if list(calls) == [LEGACY_CALL] else "tool_calls"
            self._settle_envelope({"created": self._context.created})
            steps.append(self._step(Out(n, chunk(self._envelope, index, {}, reason), repair="finish_supplied")))
        return steps

    # -- the frame ----------------------------------------------------------------------------------------------------

    def _without_payload(self, n: int, frame: Frame) -> list[Step]:
        if error := _error_field(frame.raw):
            return self._failed(Out(n, error, came=frame.raw, repair="error_field"))
        if _SILENT_BLOCK.fullmatch(frame.raw):
            return self._withheld(n, frame, "comment")
        self._withheld(n, frame, "unframed")
        steps = self.body(n, frame.raw)
        if any(isinstance(event, UpstreamError) for step in steps for event in step.events):
            return steps
        lost = self._choices.damaged(n, frame.raw) if _UNFRAMED.search(frame.raw) else ()
        return [*steps, _foreign(n, "unframed", lost)] if lost else steps

    def _payload(self, n: int, frame: Frame, payload: bytes, value: Any) -> list[Step]:
        repair = ""
        if payload.strip(b" ") == _TERMINATOR:
            canonical = frame.raw == DONE
            done = Out(n, raw=frame.raw if canonical else DONE, came=frame.raw, repair="" if canonical else "framing")
            return [*self._held_text(n), Step(n, (Terminator(n=n),), done)]
        value = parse(payload) if value is ABSENT else value
        if self._hermes and frame.event == PROGRESS_EVENT and is_object(value):
            self._retold.turn()
            return self._progress(n, frame, value)
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value = parse(payload)
            if value is not ABSENT:
                self._garbled, repair = True, "invalid_utf8"
        elif not frame.canonical:
            repair = "framing"
        if repair:
            payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
        if is_object(value) and not frame.event.startswith(b"hermes."):  # trusted on its own routes only
            raw = None if repair else frame.raw
            return self._object(Out(n, value, raw=raw, payload=payload, came=frame.raw, repair=repair), frame)
        if frame.event == b"error":  # Q90, in words
            error = _error(value if isinstance(value, str) else payload.decode())
            return self._failed(Out(n, error, came=frame.raw, repair="error_shape"))
        if value is not ABSENT:
            return [*self._withheld(n, frame, "foreign"), _foreign(n, "foreign")]
        if payload.strip()[:1] in (b"", b":"):  # Q98, Q99: keepalives
            return self._withheld(n, frame, "empty_data")
        return [*self._withheld(n, frame, "not_json"), _foreign(n, "not_json", self._choices.damaged(n, payload))]

    def _object(self, out: Out, frame: Frame) -> list[Step]:
        n, value = out.n, out.value
        given: Any = value.get("choices", ABSENT)
        choices = as_list(value.get("choices"))
        streamed = any(has(choice, "delta") for choice in choices)
        usable = streamed or (is_list(given) and (not given or any(map(is_object, choices))))
        error, status = None, value.get("base_resp")
        if is_object(status) and status.get("status_code", 0) not in (0, "0", "", None):  # Q65
            error = _error(str(status.get("status_msg") or "the upstream failed"), status["status_code"])
        elif value.get("error") or (frame.event == b"error" and not usable):  # Q90 without the wrapping object
            error = _error(value.get("error") or value)
        if error is not None:
            return self._failed_chunk(out, error, choices if usable else [])
        if not streamed and any(has(choice, "message") for choice in choices):
            self._withheld(n, frame, "whole_object")
            return self._instead(n, "whole_object" if self._said else "synthesised", value)
        listed = usable or not (given is None or (given is ABSENT and as_object(value.get("usage"))))  # Q48
        if listed and not usable:
            # A chunk of another protocol has no object under `choices`.
            lost = self._choices.damaged(n, out.payload or b"") if is_object(given) else ()
            return [*self._withheld(n, frame, "foreign"), _foreign(n, "foreign", lost)]
        if not choices and not as_object(value.get("usage")):  # Azure's filter results come first (Q46)
            return self._withheld(n, frame, "choiceless")
        draft = Draft(value if listed else {**value, "choices": list[Any]()}, self._envelope, out)
        if not listed:
            draft.set("choices_null", (), "choices", list[Any]())
        return self._chunk(draft)

    def _chunk(self, draft: Draft) -> list[Step]:
        choices: list[Any] = draft.value["choices"]
        self._repair_envelope(draft)
        self._choices.repair(draft)
        others_wait = bool(self._waiting)
        says = (others_wait or not self._said) and _delivers(choices)
        self._said = self._said or says
        if self._garbled:
            self._choices.garbled(draft)
        if self._hermes:
            for choice in choices:  # noted, not changed: a text may well repeat itself
                text = choice["delta"].get("content") if has(choice, "delta") else None
                if isinstance(text, str) and self._retold.says_again(text):
                    draft.flags.append("text_repeated")
                    draft.events.append(ForeignFrame(n=draft.n, why="text_repeated"))
        self._waiting.append(draft)
        if draft.finished or draft.failure or not (draft.seeds or (others_wait and not says)):
            return self._release()
        waiting_bytes = sum(len(one.out.payload or b"") for one in self._waiting)
        full = len(self._waiting) > limits.CHUNKS_WAITING_MAX or waiting_bytes > limits.UNDELIVERED_BYTES_MAX
        return self._release() if full else []

    def _release(self) -> list[Step]:
        """Return the steps of the chunks that are waiting, and those of our own frames around them."""
        waiting, self._waiting = self._waiting, []
        steps: list[Step] = []
        for draft in waiting:
            while draft.seeds:  # each holds the draft
                draft.seeds.pop(0)()
            more = draft.unique or draft.before or draft.after or draft.flags or draft.failure or draft.events
            plain = not (self._unusual or more) and len(draft.value["choices"]) == 1
            for flag in draft.flags:
                self._context.ledger.enter(draft.n, flag)
            if draft.edits:
                draft.out.edit(list(draft.edits.values()))
            steps += [self._step(out) for out in draft.before]
            steps.append(self._step(draft.out, draft.events, plain=plain))
            steps += [self._step(out) for out in draft.after]
            if draft.failure:
                message = f"the upstream ended the answer with finish_reason {draft.failure!r}"
                steps += self._failed(Out(draft.n, _error(message, "finish_error"), repair="finish_failure"))
        return steps

    def _step(self, out: Out, extra: Sequence[Event] = (), *, plain: bool = False) -> Step:
        """Return the step of a canonical chunk."""
        value = out.value
        found = events(value, out.n)
        choices = [choice["index"] for choice in value["choices"]]
        # Usage comes last. Members that we do not know are content too, and have no event.
        content = (bool(found) and not isinstance(found[0], Usage)) or _delivers(value["choices"])
        if not self._started:
            self._started = True
            extra = [ResponseStarted(n=out.n, id=value["id"], model=value.get("model", "")), *extra]
        return Step(out.n, [*extra, *found], out, content, choices, plain)

    def _held_text(self, n: int) -> list[Step]:
        """Return text that was held as half a tag, before the stream closes."""
        return [self._step(Out(n, value, repair="think")) for value in self._choices.held(self._envelope)]

    def _repair_envelope(self, draft: Draft) -> None:
        value = draft.value
        if not all(self._envelope.values()):
            self._settle_envelope(value)
        for key, settled in self._envelope.items():  # Q52 to Q55, Q57; empty members may be missing
            given = value.get(key, None if settled else settled)
            if given != settled or type(given) is not type(settled):
                draft.set(key, (), key, settled)
        for key in _SENT_ONCE:
            if key in value:
                if self._sent_once.get(key, ABSENT) == value[key]:
                    draft.drop("sent_once", (), key)
                else:
                    draft.unique = True
                self._sent_once[key] = value[key]

    def _settle_envelope(self, value: dict[str, Any]) -> None:
        """Fill empty members of the envelope from a chunk, or else from the stream and its request."""
        ours, context = self._envelope, self._context
        for key, otherwise in (("id", f"chatcmpl-{context.stream_id}"), ("model", context.facts.model)):
            given = value.get(key)
            ours[key] = ours[key] or (given if isinstance(given, str) else "") or otherwise
        created: Any = value.get("created")
        if not ours["created"] and not isinstance(created, bool):
            try:
                ours["created"] = int(created if isinstance(created, int) else float(created))
            except (TypeError, ValueError, OverflowError):  # neither a number nor a text with one
                ours["created"] = 0

    def _withheld(self, n: int, frame: Frame, repair: str) -> list[Step]:
        self._context.ledger.frame(n, repair, frame.raw, None)
        return []

    # -- tools of hermes-agent ----------------------------------------------------------------------------------------

    def _progress(self, n: int, frame: Frame, value: dict[str, Any]) -> list[Step]:
        """Turn a frame about a tool that the upstream runs itself into the frame that reports any other call.

        Most clients fail on its own form, as they take every `data` for a chunk (clients.md 3 and 7). What such a tool
        did cannot be undone by another attempt. The frame is trusted only on routes that are declared as hermes-agent.
        """
        context = self._context
        event = None if context.live.finished else self._tool_progress(n, value)
        if event is None or not context.settings.tool_events or context.facts.internal(event.name):
            self._withheld(n, frame, "progress_withheld")
            return [Step(n, () if event is None else (event,), delivers=event is not None)]
        self._settle_envelope({"created": context.created})
        before: list[Step] = []
        if not self._choices.started:
            role = chunk(self._envelope, 0, {"role": "assistant"})
            before = self._chunk(Draft(role, self._envelope, Out(n, role, repair="role_apart")))
        card = {**chunk(self._envelope, 0, {}), "tool": event.name, "toolCallId": event.id, "status": event.status}
        for key, member in value.items():
            if key in _CARD_KEYS or (key in ("label", "emoji") and not isinstance(member, str)):
                continue
            shown = short(member) if key == "label" else member
            long = key == "emoji" and len(member) > limits.EMOJI_CHARS_MAX
            if not long and len(dumps(shown)) <= limits.PREVIEW_BYTES_MAX:
                card[key] = shown
        out = Out(n, card, came=frame.raw, repair="progress", event=PROGRESS_EVENT)
        return [*before, Step(n, (event,), out, delivers=True)]

    def _tool_progress(self, n: int, value: dict[str, Any]) -> ToolProgress | None:
        """Return the event of a progress frame, if it is news: one `running` and one end for each call (law L7)."""
        live, ran = self._context.live, self._context.live.ran
        given, name, status = value.get("toolCallId"), value.get("tool"), value.get("status")
        if not (isinstance(given, str) and given and isinstance(name, str) and name):
            return None
        if status not in ("running", "completed", "failed"):
            return None
        known = ran.get(self._agent_ids.get(given, ""))
        runs = known is not None and known.state is State.RUNNING
        if runs is (status == "running") or len(given) > limits.CALL_ID_CHARS_MAX or len(name) > limits.NAME_CHARS_MAX:
            return None
        if known is not None and runs:
            return ToolProgress(n=n, id=known.id, name=known.name, status=status)
        if any(call.id == given and call.state in STATUS_ON_WIRE for call in live.calls()):
            return None  # the client knows it as a call of its own
        taken = given in ran or given in self._context.answered
        self._agent_ids[given] = f"call_{self._context.stream_id}_ran_{len(ran)}" if taken else given
        return ToolProgress(n=n, id=self._agent_ids[given], name=name, status=status)

    # -- errors and whole answers -------------------------------------------------------------------------------------

    def _failed(self, out: Out, usage: dict[str, Any] | None = None) -> list[Step]:
        """Return the steps of an error, which is in the one form that clients raise on."""
        n, given = out.n, out.value["error"]
        code = as_object(out.value.get("hermes")).get("error_code")  # the agent's own, which the error may lack
        if not isinstance(code, str) or not code:
            code = str(given.get("code") or given.get("type") or "")
        found: list[Event] = [Usage(n=n, counts=usage)] if usage else []
        found.append(UpstreamError(n=n, message=str(given.get("message") or ""), code=code))
        # An agent has tried again itself; on an HTTP error LangChain.js would too, seven times.
        return [*self._held_text(n), Step(n, found, out, delivers=self._hermes)]

    def _failed_chunk(self, out: Out, error: dict[str, Any], choices: list[Any]) -> list[Step]:
        """Read an error that comes with a chunk (Q89, hermes): what the chunk delivers goes out first."""
        n, value = out.n, out.value
        usage = as_object(value.get("usage")) if value.get("error") else None
        if self._hermes:
            if any(is_object(choice) and choice.get("finish_reason") == "length" for choice in choices):
                # The end of an agent's answer by length, with an error that would make every SDK raise.
                draft = Draft(value, self._envelope, out)
                draft.drop("length_error", (), "error")
                draft.events.append(ForeignFrame(n=n, why="output_truncated"))
                return self._chunk(draft)
            if is_object(value.get("hermes")):  # whether it was partial
                error = {**error, "hermes": value["hermes"]}
        if not _delivers(choices):
            same = error == value
            return self._failed(out if same else Out(n, error, came=out.came, repair="error_shape"), usage)
        draft = Draft({**value, "choices": [*choices]}, self._envelope, out)
        if "error" in value:
            draft.drop("error_apart", (), "error")
        for place, choice in enumerate(choices):
            if is_object(choice):
                draft.value["choices"][place] = {**choice, "finish_reason": None, "finishReason": None}
                if choice.get("finish_reason", "") is not None:
                    draft.set("error_apart", ("choices", place), "finish_reason", None)
        return [*self._chunk(draft), *self._failed(Out(n, error, repair="error_apart"), usage)]

    def _instead(self, n: int, repair: str, answer: dict[str, Any]) -> list[Step]:
        """Return chunks of ours in place of a whole answer, its usage last, repaired like any other."""
        if repair == "synthesised":
            chunks = _chunks_of(answer, one=self._context.facts.choices == 1)
        else:
            chunks = _news_of(answer, self._choices.unfinished)
        steps: list[Step] = []
        counts = as_object(answer.get("usage"))
        usage: dict[str, Any] = {"choices": list[Any](), "usage": counts}
        for members in [*chunks, usage] if counts else chunks:
            value = {**self._envelope, **members}
            # A whole answer has no seeds to wait for.
            steps += [*self._chunk(Draft(value, self._envelope, Out(n, value, repair=repair))), *self._release()]
        return steps


def _foreign(n: int, why: str, lost: Iterable[Event] = ()) -> Step:
    """Return a step without a frame: what was withheld, and the calls that are damaged with it."""
    return Step(n, [ForeignFrame(n=n, why=why), *lost])


def _delivers(choices: list[Any]) -> bool:
    """Return whether a chunk with these choices says anything beyond roles."""
    return any(has(choice, "delta") and says_content(choice["delta"]) for choice in choices)


def _error_field(raw: bytes) -> dict[str, Any] | None:
    """Return an error in an SSE field of that name (Q92)."""
    field = _ERROR_FIELD.search(raw)
    value = parse(field[1]) if field else None
    return _error(value) if is_object(value) else None


def _error(given: Any, code: Any = None) -> dict[str, Any]:
    """Return an object with only the error, whose extra members have their users (`failed_generation`)."""
    if is_object(given):
        return {"error": given}
    message = given if isinstance(given, str) else dumps(given).decode()
    return {"error": {"message": message, "type": "upstream_error", "code": code}}


def _news_of(answer: dict[str, Any], unfinished: list[int]) -> list[dict[str, Any]]:
    """Return the finishes and calls that are only in a whole message that repeats its stream at the end (Q60)."""
    finishes: list[dict[str, Any]] = []
    for choice in as_list(answer.get("choices")):
        if is_object(choice) and choice.get("index") in unfinished and choice.get("finish_reason"):
            calls = as_object(choice.get("message")).get("tool_calls")
            message = {"message": {"tool_calls": calls}} if is_list(calls) and calls else {}
            news = {"index": choice["index"], "delta": {}, **message, "finish_reason": choice["finish_reason"]}
            finishes.append(news)
    return [{"choices": finishes}] if finishes else []


def _chunks_of(answer: dict[str, Any], *, one: bool) -> list[dict[str, Any]]:
    """Return a stream made from a whole answer, but for its usage: each message is one delta, as it is."""
    given = [choice for choice in as_list(answer.get("choices")) if has(choice, "message")]
    others = [choice for choice in given[1:] if choice["message"].get("tool_calls")]
    if one and others and not given[0]["message"].get("tool_calls"):  # Q27: its text and its calls come as two choices
        calls = [call for choice in others for call in as_list(choice["message"]["tool_calls"])]
        given = [{**others[0], "index": 0, "message": {**given[0]["message"], "tool_calls": calls}}]
    deltas: list[dict[str, Any]] = [
        {key: part for key, part in choice.items() if key != "message"}
        | {"delta": choice["message"], "finish_reason": None}
        for choice in given
    ]
    finishes = [
        {"index": choice.get("index"), "delta": {}, "finish_reason": choice.get("finish_reason")} for choice in given
    ]
    rest = {key: part for key, part in answer.items() if key != "usage"}
    return [{**rest, "object": CHUNK, "choices": deltas}, {"choices": finishes}]
