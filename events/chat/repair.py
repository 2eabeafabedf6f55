"""Upstream frame to canonical frames and named repairs; its quirks stand here, in choices, calls, answers and think.

`Q15` is a row of the dialect catalogue. A repair is a splice into the frame's own bytes; a frame that needs none passes
as the bytes object that came. What a frame means may hang on earlier frames (which role was sent, which call an index
stands for), so one `Repair` follows one attempt of one stream. It never raises on upstream data.
"""

import re
from typing import Any, Final, NamedTuple

from ..core.json_text import ABSENT, as_object, dumps, is_list, is_object, parse
from ..core.limits import CHUNKS_WAITING_MAX, UNDELIVERED_BYTES_MAX
from ..core.model import Event, ForeignFrame, ToolArgumentsDelta
from ..core.settings import Facts, Settings
from ..core.splice import Action, Op, Splicer, locate
from ..emission.ledger import Ledger
from ..tape.record import Record
from ..wire.sse import BOM, Frame, encode, parse_block
from .answers import Failure, choices_of, chunks_of, delivers, error_of, failure_of, has_delta, has_message, news_of
from .choices import Choices
from .flowing import flowing, is_text
from .hermes import Progress, Retold, ended_by_length, failure_of_agent
from .work import Work
from .write import CHUNK, DONE, PROGRESS_EVENT, Envelope

__all__ = ["Chunk", "Done", "Item", "Repair", "Unknown", "role_moved", "without_claims"]

_TERMINATOR: Final = b"[DONE]"
#: Top-level lists that Perplexity repeats on every chunk (Q87).
_SENT_ONCE: Final = ("citations", "search_results")
#: The SSE field of llama.cpp through 2025 and GPUStack (Q92); every SDK silently ignores such a line.
_ERROR_FIELD: Final = re.compile(rb"(?:^(?:\xef\xbb\xbf)?|[\r\n])error: ?(\{[^\r\n]*\})")
#: A block of nothing but comments and fields that dispatch nothing.
_SILENT_BLOCK: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:(?::|(?:event|id|retry)(?=[:\r\n]))[^\r\n]*+[\r\n]++|[\r\n]++)*+"
)
#: A line that lacks the name of its field, and no field of somebody else's.
_UNFRAMED: Final = re.compile(rb'(?:^|[\r\n])[ \t]*(?:[{"]|data)')
#: How a line of a stream may begin; `rest` that begins otherwise never was one (Q93, Q96).
_LINE_OF_STREAM: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:data|event|id|retry|)(?::|\Z)")
#: Members of a delta that are text to every client.
_PLAIN_TEXTS: Final = frozenset({"content", "refusal", "reasoning_content"})
_DELTA: Final = ("choices", 0, "delta")
_DETAIL: Final = (*_DELTA, "reasoning_details", 0)
#: Where the text of a frame stands, which alone differs from the frame before.
_TEXTS: Final = (
    (_DELTA, "content"),
    (_DELTA, "reasoning_content"),
    (_DELTA, "reasoning"),
    (_DETAIL, "text"),
    (_DETAIL, "summary"),
    (("choices", 0, "message"), "content"),
)


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


class Unknown(NamedTuple):
    """Nothing of this dialect, and why; withheld."""

    n: int
    why: str
    #: What is lost with it.
    events: tuple[Event, ...] = ()


Item = Chunk | Done | Failure | Progress | Unknown


def role_moved(chunk: Chunk, index: int, roles: set[int]) -> list[Op]:
    """A warning that goes out before the chunk with the role takes the role along."""
    places = [place for place, choice in enumerate(chunk.value["choices"]) if choice["index"] == index]
    with_role = [place for place in places if "role" in chunk.value["choices"][place]["delta"]]
    if with_role:
        roles.discard(index)
    return [Op("role_repeated", ("choices", place, "delta"), Action.DROP, "role") for place in with_role]


def without_claims(chunk: Chunk, claims: set[int]) -> list[Op]:
    """A finish over a malformed call is withheld: nobody may take the call for whole."""
    return [
        Op("malformed_claim", ("choices", place), Action.SET, "finish_reason", b"null")
        for place, choice in enumerate(chunk.value["choices"])
        if choice["index"] in claims and choice.get("finish_reason")
    ]


class _Waiting(NamedTuple):
    """A chunk that is repaired but for its `{}`, which may be a seed: the chunks behind it tell (Q20)."""

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
        self._splicer = Splicer(_TEXTS)
        self._sent_once: dict[str, Any] = {}
        self._waiting: list[_Waiting] = []
        self._last_n = 0
        #: The last frame was one more piece of text of a choice that flows, and nothing but its splice came of it.
        self._steady = False
        #: Something beyond a role has come.
        self._said = False
        #: Of the frame under repair some bytes were no UTF-8.
        self._garbled = False
        self._synthesise = settings.synthesise or not facts.stream
        self._hermes = settings.hermes
        self._retold = Retold()
        self._choices = Choices(facts, settings, stream_id, roles)
        unusual = settings.cumulative or settings.hermes or settings.reasoning == "reasoning"
        self._plain_texts = frozenset[str]() if unusual else _PLAIN_TEXTS

    def plain(self, value: Any) -> bool:
        """Whether this is one more piece of text of a choice that flows, canonical as it is.

        Nine frames of ten are, and here the time of the core is spent; most others take the long way.
        """
        choice = flowing(value, self._envelope, self._choices.flowing)
        if choice is None or self._waiting or value.get("usage"):
            return False
        return is_text(choice["delta"], self._plain_texts)

    def arguments(self, value: Any, n: int) -> ToolArgumentsDelta | None:
        """What this says, if it is one more piece of arguments of a call of such a choice, and canonical as it is."""
        choice = flowing(value, self._envelope, self._choices.flowing)
        if choice is None or not self._plain_texts or self._waiting or value.get("usage"):
            return None
        return self._choices.arguments(choice["index"], choice["delta"], n)

    def steady(self, payload: bytes) -> bytes | None:
        """The frame for a payload that differs from the last one only in its text: the same repairs are due."""
        new = self._splicer.again(payload) if self._steady else None
        if new is None:
            return None
        for op in self._splicer.ops:
            self._ledger.count(op.repair)
        return b"data: %b\n\n" % new

    def frame(self, record: Record) -> list[Item]:
        """What this frame becomes; chunks that were waiting for it come out first."""
        frame = record.frame()
        self._last_n = record.n
        self._ledger.came(record.n, frame.raw)
        self._steady = self._garbled = False
        items = self._without_payload(record.n, frame) if frame.payload is None else self._payload(record, frame)
        return [*self._release(), *items] if items else items

    def rest(self, n: int, raw: bytes) -> list[Item]:
        """The bytes behind the last blank line: a last `[DONE]` counts (Q106), an unframed answer is read (Q93)."""
        self._last_n = n
        payload = parse_block(raw, first=True).payload
        if payload is not None and payload.strip(b" ") == _TERMINATOR:
            self._ledger.added(n, "framing", DONE)
            return [*self.end(), Done(n, DONE)]
        if failure := _error_field(n, raw):
            self._ledger.added(n, "error_field", failure.frame)
            return [*self.end(), failure]
        if _LINE_OF_STREAM.match(raw):
            return self.end()
        return [*self.end(), *self.answer(n, raw)]

    def answer(self, n: int, body: bytes) -> list[Item]:
        """A whole answer where a stream was due (Q93, Q96): an error, a completion made into a stream, or neither."""
        body = body.removeprefix(BOM).strip()
        value = parse(body)
        if value is ABSENT and body.startswith(b"{"):
            return []  # the beginning of one: a cut like any other
        answer: dict[str, Any] = as_object(value)
        if answer.get("error"):
            failure = failure_of(n, dumps(answer), answer)
            self._ledger.added(n, "unframed", failure.frame)
            return [failure]
        if self._choices.started or not self._synthesise or not any(map(has_message, choices_of(answer))):
            return [Unknown(n, "not_a_stream")]
        return [Unknown(n, "synthesised"), *self._synthesised(n, answer), *self.end()]

    def end(self) -> list[Item]:
        """No frame follows: what was waiting for one comes out."""
        return [*self._release(), *self._held_text(self._last_n)]

    # -- the frame -----------------------------------------------------------------------------------------------

    def _without_payload(self, n: int, frame: Frame) -> list[Item]:
        if failure := _error_field(n, frame.raw):
            self._ledger.replaced(n, "error_field", failure.frame)
            return [*self._held_text(n), failure]
        if _SILENT_BLOCK.fullmatch(frame.raw):
            self._ledger.withheld(n, "comment")
            return []
        self._ledger.withheld(n, "unframed")
        items = self.answer(n, frame.raw)
        if any(isinstance(item, Failure) for item in items):
            return items
        lost = self._choices.damaged(n, frame.raw) if _UNFRAMED.search(frame.raw) else ()
        return [*items, Unknown(n, "unframed", tuple(lost))] if lost else items

    def _payload(self, record: Record, frame: Frame) -> list[Item]:
        n, payload = record.n, frame.payload
        assert payload is not None
        if payload.strip(b" ") == _TERMINATOR:
            if frame.raw == DONE:
                return [*self._held_text(n), Done(n, frame.raw)]
            self._ledger.replaced(n, "framing", DONE)
            return [*self._held_text(n), Done(n, DONE)]
        value = record.value if record.value is not ABSENT else parse(payload)
        if self._hermes and frame.event == PROGRESS_EVENT and is_object(value):
            self._retold.turn()
            return [Progress(n, frame.raw, payload.replace(b"\n", b" "), value)]
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value = parse(payload)
            self._garbled = value is not ABSENT
            if value is not ABSENT:
                payload = payload.replace(b"\n", b" ")
                frame = frame._replace(canonical=False)  # what came is not what goes out
                self._ledger.replaced(n, "invalid_utf8", encode(payload))
        elif not frame.canonical:
            payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
            self._ledger.replaced(n, "framing", encode(payload))
        if is_object(value) and not frame.event.startswith(b"hermes."):  # whose word counts on its own routes only
            return self._object(n, payload, value, frame)
        return self._no_object(n, payload, value, frame)

    def _no_object(self, n: int, payload: bytes, value: Any, frame: Frame) -> list[Item]:
        if frame.event == b"error":  # Q90, in words
            text = value if isinstance(value, str) else payload.decode()
            failure = failure_of(n, payload, {"error": text})
            self._ledger.replaced(n, "error_shape", failure.frame)
            return [*self._held_text(n), failure]
        if value is not ABSENT:
            self._ledger.withheld(n, "foreign")
            return [Unknown(n, "foreign")]
        if payload.strip()[:1] in (b"", b":"):  # Q98, Q99: keepalives
            self._ledger.withheld(n, "empty_data")
            return []
        self._ledger.withheld(n, "not_json")
        return [Unknown(n, "not_json", tuple(self._choices.damaged(n, payload)))]

    def _object(self, n: int, payload: bytes, value: dict[str, Any], frame: Frame) -> list[Item]:
        given: Any = value.get("choices", ABSENT)
        choices = choices_of(value)
        usable = is_list(given) and (not given or any(map(is_object, choices)))
        failure = error_of(payload, value, frame.event, usable=usable)
        if failure is not None and self._hermes:
            if ended_by_length(value):
                return self._length(n, payload, value)
            failure = failure_of_agent(failure, payload, value)
        if failure is not None:
            if failure.frame == frame.raw:
                return [*self._held_text(n), failure._replace(n=n, frame=frame.raw)]
            return self._failed_chunk(n, payload, value, failure, usable=usable)
        if any(map(has_message, choices)) and not any(map(has_delta, choices)):
            self._ledger.withheld(n, "whole_object")
            return self._news(n, value) if self._said else self._synthesised(n, value)
        usage = value.get("usage")
        counts = is_object(usage) and bool(usage)
        if given is None or (given is ABSENT and counts):  # Q48
            value, usable = {**value, "choices": list[Any]()}, True
        if not usable:
            self._ledger.withheld(n, "foreign")
            lost = self._choices.damaged(n, payload) if is_object(given) else ()  # else it is something else's
            return [Unknown(n, "foreign", tuple(lost))]
        if not value["choices"] and not counts:
            self._ledger.withheld(n, "choiceless")  # Azure's filter results come first (Q46), others anywhere
            return []
        work = Work(n, value, self._envelope)
        if given is not value["choices"]:
            work.op("choices_null", (), Action.SET, "choices", b"[]")
        return self._chunk(work, payload, frame.raw if frame.canonical else encode(payload))

    def _chunk(self, work: Work, payload: bytes, frame: bytes) -> list[Item]:
        flows = self._choices.only_text(work)
        news = any(key in work.value and self._sent_once.get(key, ABSENT) != work.value[key] for key in _SENT_ONCE)
        self._envelope_ops(work)
        self._choices.repair(work)
        self._said = self._said or any(map(delivers, work.value["choices"]))
        if self._garbled:
            self._choices.garbled(work)
        if self._hermes:
            self._look_for_retries(work)
        self._steady = flows and not news and bool(work.ops) and not self._waiting and self._choices.only_text(work)
        waiting = _Waiting(work, payload, frame)
        size = sum(len(one.payload) for one in self._waiting) + len(payload)
        full = len(self._waiting) == CHUNKS_WAITING_MAX or size > UNDELIVERED_BYTES_MAX
        if self._is_undecided(work) and not full:
            self._waiting.append(waiting)
            return []
        return [*self._release(), *self._released(waiting)]

    def _look_for_retries(self, work: Work) -> None:
        """Told, not changed: a text may well say something twice."""
        for choice in filter(has_delta, work.value["choices"]):
            text = choice["delta"].get("content")
            if isinstance(text, str) and self._retold.says_again(text):
                work.flags.append("text_repeated")
                work.events.append(ForeignFrame(n=work.n, why="text_repeated"))

    def _is_undecided(self, work: Work) -> bool:
        """Whether the chunk has a `{}` that may be a seed, or says nothing that could decide about one before it."""
        if work.finished or work.failure:
            return False
        return bool(work.seeds) or (bool(self._waiting) and not any(map(delivers, work.value["choices"])))

    def _release(self) -> list[Item]:
        waiting, self._waiting = self._waiting, []
        return [item for one in waiting for item in self._released(one)]

    def _released(self, waiting: _Waiting) -> list[Item]:
        """The chunk goes out, in the company of our own frames."""
        work, n = waiting.work, waiting.work.n
        work.settle()
        for flag in work.flags:
            self._ledger.flagged(n, flag)
        items: list[Item] = [self._own(n, *frame_of_ours) for frame_of_ours in work.before]
        items.append(self._spliced(*waiting))
        items += [self._own(n, *frame_of_ours) for frame_of_ours in work.after]
        if work.failure:
            message = f"the upstream ended the answer with finish_reason {work.failure!r}"
            body = {"message": message, "type": "upstream_error", "code": "finish_error"}
            failure = encode(dumps({"error": body}))
            self._ledger.added(n, "finish_failure", failure)
            items += [*self._held_text(n), Failure(n, failure, message, "finish_error")]
        return items

    def _held_text(self, n: int) -> list[Item]:
        """Before the stream closes: text that was held as half a tag."""
        return [self._own(n, "think", payload) for payload in self._choices.held(self._envelope)]

    def _spliced(self, work: Work, payload: bytes, frame: bytes) -> Chunk:
        ops = work.ops
        if not ops:
            return Chunk(work.n, work.value, frame, tuple(work.events))
        if self._ledger.whole:
            self._ledger.spliced(work.n, locate(payload, ops), work.base + len(b"data: "))
        else:
            for op in ops:
                self._ledger.count(op.repair)
        payload = self._splicer.apply(payload, ops)
        return Chunk(work.n, parse(payload), b"data: %b\n\n" % payload, tuple(work.events))

    def _own(self, n: int, repair: str, payload: bytes) -> Chunk:
        frame = encode(payload)
        self._ledger.added(n, repair, frame)
        return Chunk(n, parse(payload), frame)

    def _envelope_ops(self, work: Work) -> None:
        value, envelope = work.value, self._envelope
        given = value.get("id")
        if not envelope.id:
            envelope.id = given if isinstance(given, str) and given else f"chatcmpl-{self._stream_id}"
        if given != envelope.id:
            work.op("id", (), Action.SET, "id", dumps(envelope.id))  # Q53
        if value.get("object") != CHUNK:
            work.op("object", (), Action.SET, "object", dumps(CHUNK))  # Q52
        self._created(work)
        self._model(work)
        for key in _SENT_ONCE:
            if key in value:
                if key in self._sent_once and self._sent_once[key] == value[key]:
                    work.op("sent_once", (), Action.DROP, key)
                self._sent_once[key] = value[key]

    def _model(self, work: Work) -> None:
        """Q55: the first that is not empty; until one comes, the one that was asked for."""
        envelope, given = self._envelope, work.value.get("model", "")
        if not envelope.model:
            envelope.model = given if isinstance(given, str) and given else self._facts.model
        if given != envelope.model:
            work.op("model", (), Action.SET, "model", dumps(envelope.model))

    def _created(self, work: Work) -> None:
        """Q54, Q57: one integer, the first that is not zero; what came as float or text is read."""
        envelope, given = self._envelope, work.value.get("created", 0)
        envelope.created = envelope.created or _integer(given)
        if given != envelope.created or type(given) is not int:
            work.op("created", (), Action.SET, "created", dumps(envelope.created))

    # -- errors and whole answers --------------------------------------------------------------------------------

    def _length(self, n: int, payload: bytes, value: dict[str, Any]) -> list[Item]:
        """The agent's answer ended by length, with an error beside it that would make every SDK raise."""
        work = Work(n, value, self._envelope)
        work.op("length_error", (), Action.DROP, "error")
        work.events.append(ForeignFrame(n=n, why="output_truncated"))
        return self._chunk(work, payload, encode(payload))

    def _failed_chunk(
        self, n: int, payload: bytes, value: dict[str, Any], failure: Failure, *, usable: bool
    ) -> list[Item]:
        """An error that rides on a chunk (Q89, hermes): what the chunk delivers goes out first."""
        choices = choices_of(value) if usable else []
        if not any(map(delivers, choices)):
            if failure.frame != encode(payload):
                self._ledger.replaced(n, "error_shape", failure.frame)
            return [*self._held_text(n), failure._replace(n=n)]
        open_ended = [
            {**choice, "finish_reason": None, "finishReason": None} if is_object(choice) else choice
            for choice in choices
        ]
        work = Work(n, {**value, "choices": open_ended}, self._envelope)
        if "error" in value:
            work.op("error_apart", (), Action.DROP, "error")
        for place, choice in enumerate(choices):
            if is_object(choice) and choice.get("finish_reason", "") is not None:
                work.op("error_apart", ("choices", place), Action.SET, "finish_reason", b"null")
        items = self._chunk(work, payload, encode(payload))
        self._ledger.added(n, "error_apart", failure.frame)
        return [*items, *self._held_text(n), failure._replace(n=n)]

    def _news(self, n: int, value: dict[str, Any]) -> list[Item]:
        return self._instead(n, "whole_object", news_of(value, self._choices.unfinished))

    def _synthesised(self, n: int, answer: dict[str, Any]) -> list[Item]:
        return self._instead(n, "synthesised", chunks_of(answer, one=self._facts.choices == 1))

    def _instead(self, n: int, repair: str, chunks: list[dict[str, Any]]) -> list[Item]:
        """Chunks of ours in place of what came, repaired like any other."""
        items: list[Item] = []
        envelope = self._envelope
        for members_of_chunk in chunks:
            head = {"id": envelope.id, "object": CHUNK, "created": envelope.created, "model": envelope.model}
            payload = dumps({**head, **members_of_chunk})
            work = Work(n, parse(payload), envelope, base=self._ledger.size(n))
            self._ledger.added(n, repair, encode(payload))
            # A whole answer has no seeds to wait for, and the next chunk is placed behind what this one becomes.
            items += [*self._chunk(work, payload, encode(payload)), *self._release()]
        return items


def _error_field(n: int, raw: bytes) -> Failure | None:
    """Q92: an error in an SSE field of that name."""
    field = _ERROR_FIELD.search(raw)
    value = parse(field[1]) if field else None
    return failure_of(n, b'{"error":%b}' % field[1], {"error": value}) if field and is_object(value) else None


def _integer(given: Any) -> int:
    """The integer that a number or a text says; 0 where it says none."""
    try:
        return 0 if isinstance(given, bool) else int(given if isinstance(given, int) else float(given))
    except (TypeError, ValueError, OverflowError):
        return 0
