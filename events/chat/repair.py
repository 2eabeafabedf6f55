"""Upstream frame to canonical frames and named repairs; the only file that knows this dialect's quirks.

`Q15` is a row of the dialect catalogue. A repair is a splice into the frame's own bytes; a frame that needs none passes
as the bytes object that came. What a frame means may hang on earlier frames (which role was sent, which call an index
stands for), so one `Repair` follows one attempt of one stream. It never raises on upstream data.
"""

import re
from typing import Any, Final, NamedTuple

from ..json_text import ABSENT, dumps, is_list, is_object, members, parse
from ..ledger import Ledger
from ..model import Event
from ..record import Record
from ..settings import Facts, Settings
from ..splice import Action, Splicer, locate
from ..sse import Frame, encode
from . import read
from .calls import Work
from .choices import Choices
from .write import CHUNK, DONE, Envelope, payloads

__all__ = ["Chunk", "Done", "Failure", "Item", "Repair", "Unknown"]

_TERMINATOR: Final = b"[DONE]"
#: Top-level lists that Perplexity repeats on every chunk (Q87).
_SENT_ONCE: Final = ("citations", "search_results")
#: The SSE field of llama.cpp through 2025 and GPUStack (Q92); every SDK silently ignores such a line.
_ERROR_FIELD: Final = re.compile(rb"(?:^|[\r\n])error: ?(\{[^\r\n]*\})")
#: A block of nothing but comments and fields that dispatch nothing.
_SILENT_BLOCK: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:(?::|event|id|retry)[^\r\n]*+[\r\n]++|[\r\n]++)*+")
#: Members of a delta that are text to every client.
_PLAIN_TEXTS: Final = frozenset({"content", "refusal", "reasoning_content"})
_DELTA: Final = ("choices", 0, "delta")


class Chunk(NamedTuple):
    """A canonical chunk and the bytes to emit for it: the object that came, where nothing was changed."""

    n: int
    value: dict[str, Any]
    frame: bytes
    #: What the chunk says beyond its own text.
    events: tuple[Event, ...] = ()


class Done(NamedTuple):
    """The terminator, and its bytes."""

    n: int
    frame: bytes


class Failure(NamedTuple):
    """The upstream's own error, in the one form that clients raise on."""

    n: int
    frame: bytes
    message: str
    code: str


class Unknown(NamedTuple):
    """Nothing of this dialect, and why; withheld."""

    n: int
    why: str


Item = Chunk | Done | Failure | Unknown


class _Waiting(NamedTuple):
    """A chunk whose `{}` may be a seed: the next frame tells (Q20)."""

    work: Work
    payload: bytes
    frame: bytes


class Repair:
    """Feed the `frame` records of one attempt in order."""

    def __init__(
        self, facts: Facts, settings: Settings, envelope: Envelope, roles: set[int], ledger: Ledger, stream_id: str
    ) -> None:
        """`envelope` and `roles` are what the client has already; they outlive an attempt."""
        self._ledger = ledger
        self._envelope = envelope
        self._facts = facts
        self._stream_id = stream_id
        self._splicer = Splicer([(_DELTA, "content"), (_DELTA, "reasoning_content"), (_DELTA, "reasoning")])
        self._sent_once: dict[str, Any] = {}
        self._waiting: _Waiting | None = None
        #: The last frame was one more piece of text of a choice that flows, and nothing but its splice came of it.
        self._steady = False
        self._choices = Choices(facts, settings, stream_id, roles)
        unusual = settings.cumulative or settings.reasoning == "reasoning"
        self._plain_texts = frozenset[str]() if unusual else _PLAIN_TEXTS

    def plain(self, value: Any) -> bool:
        """Whether this is one more piece of text of a choice that flows, canonical as it is.

        Nine frames of ten are, and here the time of the core is spent; every other frame takes the long way.
        """
        try:
            (choice,) = value["choices"]
            envelope = self._envelope
            if (
                choice["finish_reason"] is not None
                or choice["index"] not in self._choices.flowing
                or value["id"] != envelope.id
                or value["model"] != envelope.model
                or value["created"] != envelope.created
                or type(value["created"]) is not int
                or value["object"] != CHUNK
                or "error" in value
                or "base_resp" in value
                or "finishReason" in choice
            ):
                return False
            for key, text in choice["delta"].items():
                if key not in self._plain_texts or (text is not None and type(text) is not str):
                    return False
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        return not self._sent_once and self._waiting is None

    def steady(self, payload: bytes) -> bytes | None:
        """The frame for a payload that differs from the last one only in its text: the same repairs are due."""
        new = self._splicer.again(payload) if self._steady else None
        if new is None:
            return None
        for op in self._splicer.ops:
            self._ledger.count(op.repair)
        return b"data: %b\n\n" % new

    def frame(self, record: Record) -> list[Item]:
        """What this frame becomes. A chunk that was waiting for it comes out first."""
        frame = record.frame()
        self._ledger.came(record.n, frame.raw)
        self._steady = False
        waiting, self._waiting = self._waiting, None
        items = self._without_payload(record.n, frame) if frame.payload is None else self._payload(record, frame)
        return items if waiting is None else [self._released(waiting), *items]

    def rest(self, n: int, raw: bytes) -> list[Item]:
        """The bytes behind the last blank line: a last `[DONE]` counts (Q106), an unframed JSON answer is read (Q93)."""
        if raw.strip(b"\r\n").removeprefix(b"data:").strip(b" ") == _TERMINATOR:
            self._ledger.added(n, "framing", DONE)
            return [*self.end(), Done(n, DONE)]
        value = parse(raw.strip())
        return [*self.end(), *([] if value is ABSENT else self.answer(n, value))]

    def answer(self, n: int, value: Any) -> list[Item]:
        """A whole JSON answer where a stream was due (Q93, Q96): an error, or a completion made into a stream."""
        if not is_object(value):
            return [Unknown(n, "not_a_stream")]
        answer: dict[str, Any] = value
        if answer.get("error"):
            return [self._failure(n, dumps(answer), answer)]
        if not is_list(answer.get("choices")):
            return [Unknown(n, "not_a_stream")]
        return self._synthesised(n, answer)

    def end(self) -> list[Item]:
        """No frame follows: a chunk that was waiting for it comes out."""
        waiting, self._waiting = self._waiting, None
        return [] if waiting is None else [self._released(waiting)]

    # -- the frame -----------------------------------------------------------------------------------------------

    def _without_payload(self, n: int, frame: Frame) -> list[Item]:
        if field := _ERROR_FIELD.search(frame.raw):
            value = parse(field[1])
            if is_object(value):
                failure = self._failure(n, b'{"error":%b}' % field[1], {"error": value})
                self._ledger.replaced(n, "error_field", failure.frame)
                return [failure]
        if _SILENT_BLOCK.fullmatch(frame.raw):
            self._ledger.withheld(n, "comment")
            return []
        value = parse(frame.raw.strip())
        self._ledger.withheld(n, "unframed")
        return [Unknown(n, "not_a_stream")] if value is ABSENT else self.answer(n, value)

    def _payload(self, record: Record, frame: Frame) -> list[Item]:
        n, payload = record.n, frame.payload
        assert payload is not None
        if payload.strip(b" ") == _TERMINATOR:
            if frame.raw == DONE:
                return [Done(n, frame.raw)]
            self._ledger.replaced(n, "framing", DONE)
            return [Done(n, DONE)]
        value = record.value if record.value is not ABSENT else parse(payload)
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value = parse(payload)
            if value is ABSENT:
                self._ledger.withheld(n, "not_json" if payload.strip() else "empty_data")
                return [Unknown(n, "not_json")] if payload.strip() else []
            self._ledger.replaced(n, "invalid_utf8", encode(payload))
        elif not frame.canonical:
            payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
            self._ledger.replaced(n, "framing", encode(payload))
        if not is_object(value):
            self._ledger.withheld(n, "foreign")
            return [Unknown(n, "foreign")]
        return self._object(n, payload, value, frame)

    def _object(self, n: int, payload: bytes, value: dict[str, Any], frame: Frame) -> list[Item]:
        choices: Any = value.get("choices", ABSENT)
        usable = is_list(choices) and all(is_object(choice) for choice in choices)
        failure = self._error_of(payload, value, frame, usable=usable)
        if failure is not None:
            if failure.frame == frame.raw:
                return [failure._replace(n=n, frame=frame.raw)]
            return self._failed_chunk(n, payload, value, failure, usable=usable)
        if usable and value.get("object") == "chat.completion" and not any("delta" in choice for choice in choices):
            return self._whole_object(n, value)
        if choices is None or (choices is ABSENT and is_object(value.get("usage"))):  # Q48
            value, usable = {**value, "choices": list[Any]()}, True
        if not usable:
            self._ledger.withheld(n, "foreign")
            return [Unknown(n, "foreign")]
        if not value["choices"] and not value.get("usage"):
            self._ledger.withheld(n, "choiceless")  # Azure's filter results come first (Q46), others anywhere
            return []
        work = Work(n, value, self._envelope)
        if choices is not value["choices"]:
            work.op("choices_null", (), Action.SET, "choices", b"[]")
        return self._chunk(work, payload, frame.raw if frame.canonical else encode(payload))

    def _chunk(self, work: Work, payload: bytes, frame: bytes) -> list[Item]:
        n = work.n
        flowing = set(self._choices.flowing)
        self._envelope_ops(work)
        self._choices.repair(work)
        unchanged = bool(flowing) and flowing == self._choices.flowing
        self._steady = unchanged and bool(work.ops) and self._choices.only_text(work)
        for flag in work.flags:
            self._ledger.flagged(n, flag)
        items: list[Item] = [self._own(n, *frame_of_ours) for frame_of_ours in work.before]
        if work.seeds and not any(choice.get("finish_reason") for choice in work.value["choices"]):
            self._waiting = _Waiting(work, payload, frame)
        else:
            items.append(self._released(_Waiting(work, payload, frame)))
        items += [self._own(n, *frame_of_ours) for frame_of_ours in work.after]
        if work.failure:
            message = f"the upstream ended the answer with finish_reason {work.failure!r}"
            body = {"message": message, "type": "upstream_error", "code": "finish_error"}
            failure = encode(dumps({"error": body}))
            self._ledger.added(n, "finish_failure", failure)
            items.append(Failure(n, failure, message, "finish_error"))
        return items

    def _spliced(self, work: Work, payload: bytes, frame: bytes) -> Chunk:
        if not work.ops:
            return Chunk(work.n, work.value, frame, tuple(work.events))
        if self._ledger.whole:
            self._ledger.spliced(work.n, locate(payload, work.ops), work.base + len(b"data: "))
        else:
            for op in work.ops:
                self._ledger.count(op.repair)
        payload = self._splicer.apply(payload, work.ops)
        return Chunk(work.n, parse(payload), b"data: %b\n\n" % payload, tuple(work.events))

    def _own(self, n: int, repair: str, payload: bytes) -> Chunk:
        frame = encode(payload)
        self._ledger.added(n, repair, frame)
        return Chunk(n, parse(payload), frame)

    def _released(self, waiting: _Waiting) -> Chunk:
        """The chunk goes out: a `{}` that the next frame went on with was a seed, otherwise the whole argument."""
        work = waiting.work
        for path, call in work.seeds:
            if call.seed_dropped:
                work.op("arguments_seed", path, Action.SET, "arguments", b'""')
            call.seed = call.seed_dropped = False
        return self._spliced(work, waiting.payload, waiting.frame)

    def _envelope_ops(self, work: Work) -> None:
        value, envelope = work.value, self._envelope
        given = value.get("id")
        if not envelope.id:
            envelope.id = given if isinstance(given, str) and given else f"chatcmpl-{self._stream_id}"
        if given != envelope.id:
            work.op("id", (), Action.SET, "id", dumps(envelope.id))  # Q53
        if value.get("object") != CHUNK:
            work.op("object", (), Action.SET, "object", dumps(CHUNK))  # Q52
        self._created(work, value.get("created"))
        model = value.get("model")
        if not envelope.model:
            envelope.model = model if isinstance(model, str) and model else self._facts.model
        if envelope.model and model != envelope.model:
            work.op("model", (), Action.SET, "model", dumps(envelope.model))  # Q55
        for key in _SENT_ONCE:
            if key in value:
                if key in self._sent_once and self._sent_once[key] == value[key]:
                    work.op("sent_once", (), Action.DROP, key)
                self._sent_once[key] = value[key]

    def _created(self, work: Work, given: Any) -> None:
        """Q54, Q57: one integer, the first that is not zero; what came as float or text is read."""
        envelope = self._envelope
        if not envelope.created:
            try:
                envelope.created = int(given)
            except (TypeError, ValueError, OverflowError):
                envelope.created = 0
        if envelope.created and (given != envelope.created or type(given) is not int):
            work.op("created", (), Action.SET, "created", dumps(envelope.created))

    # -- errors and whole answers --------------------------------------------------------------------------------

    def _error_of(self, payload: bytes, value: dict[str, Any], frame: Frame, *, usable: bool) -> Failure | None:
        status: Any = value.get("base_resp")
        if is_object(status) and status.get("status_code"):  # Q65
            body = {"message": str(status.get("status_msg") or "the upstream failed"), "code": status["status_code"]}
            return self._failure(0, dumps({"error": body}), {"error": body})
        if value.get("error"):
            return self._failure(0, payload, value)
        if frame.event == b"error" and not usable:  # Q90 without the wrapping object
            return self._failure(0, b'{"error":%b}' % payload, {"error": value})
        return None

    def _failed_chunk(
        self, n: int, payload: bytes, value: dict[str, Any], failure: Failure, *, usable: bool
    ) -> list[Item]:
        """An error that rides on a chunk (Q89, hermes): what the chunk delivers goes out first."""
        items: list[Item] = []
        choices: list[Any] = value["choices"] if usable else []
        if any(is_object(choice.get("delta")) and choice["delta"].get("content") for choice in choices):
            work = Work(
                n, {**value, "choices": [{**choice, "finish_reason": None} for choice in choices]}, self._envelope
            )
            work.op("error_apart", (), Action.DROP, "error")
            for place, choice in enumerate(choices):
                if choice.get("finish_reason") is not None:
                    work.op("error_apart", ("choices", place), Action.SET, "finish_reason", b"null")
            items += self._chunk(work, payload, b"")
            self._ledger.added(n, "error_apart", failure.frame)
        elif failure.frame != encode(payload):
            self._ledger.replaced(n, "error_shape", failure.frame)
        return [*items, failure._replace(n=n)]

    def _failure(self, n: int, payload: bytes, value: dict[str, Any]) -> Failure:
        """The error object verbatim and alone, because extra members of it are somebody's (`failed_generation`)."""
        given: Any = value["error"]
        if not is_object(given):
            body = dumps({"error": {"message": str(given), "type": "upstream_error", "code": None}})
        elif len(value) == 1:
            body = payload
        else:
            error = next(member for member in reversed(members(payload, payload.index(b"{"))) if member.key == "error")
            body = b'{"error":%b}' % payload[error.value : error.end]
        fields: dict[str, Any] = given if is_object(given) else {"message": given}
        code = fields.get("code", fields.get("type"))
        return Failure(n, encode(body), str(fields.get("message", "")), "" if code is None else str(code))

    def _whole_object(self, n: int, value: dict[str, Any]) -> list[Item]:
        """Q60: a stream that repeats its message as one last object; of that only the usage is news."""
        if not self._choices.started:
            self._ledger.withheld(n, "whole_object")
            return self._synthesised(n, value)
        usage = value.get("usage")
        if not is_object(usage) or not usage:
            self._ledger.withheld(n, "whole_object")
            return []
        envelope = self._envelope
        head = {"id": envelope.id, "object": CHUNK, "created": envelope.created, "model": envelope.model}
        payload = dumps({**head, "choices": [], "usage": usage})
        self._ledger.replaced(n, "whole_object", encode(payload))
        return [Chunk(n, parse(payload), encode(payload))]

    def _synthesised(self, n: int, answer: dict[str, Any]) -> list[Item]:
        """A stream made from a whole answer, repaired like any other."""
        envelope = Envelope(f"chatcmpl-{self._stream_id}", self._facts.model, 0)
        for key, kind in (("id", str), ("model", str), ("created", int)):
            if isinstance(answer.get(key), kind):
                setattr(envelope, key, answer[key])
        items: list[Item] = []
        for payload in payloads(read.completion(answer, n), envelope):
            work = Work(n, parse(payload), self._envelope, base=self._ledger.size(n))
            self._ledger.added(n, "synthesised", encode(payload))
            items += self._chunk(work, payload, encode(payload))
        return [*items, *self.end(), Done(n, b"")]
