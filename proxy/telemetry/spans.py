"""The pure fold from a tape to spans: equal records give equal spans, whenever and however often they are made.

    SERVER  POST /v1/chat/completions     the client's view, up to its last byte or until it left
    └ CLIENT chat gpt-4o                  the logical operation over all attempts, with its tool calls as events
      └ CLIENT POST                       one attempt: first content, silences, the cut

A request that brings the result of a call adds `execute_tool NAME` to the trace of the stream that made the call.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from wiretape.events.core.json_text import ABSENT, as_list, as_object, as_text, is_list
from wiretape.events.core.lifecycle import State
from wiretape.events.emit import Summariser
from wiretape.events.tape.record import Record, speaks

from ..limits import OTEL_CONTENT_BYTES_MAX, OTEL_SILENCE_US
from ..security.trace import Trace
from .content import input_messages, output_messages
from .names import RENAMED, address_of, operation_attributes
from .otlp import CLIENT, INTERNAL, SERVER, Event, span

__all__ = ["SpanFold"]


class SpanFold:
    """`take` the records of one tape in order; then `spans`. Every prefix of a tape has spans."""

    def __init__(self, stream: str, *, vocabulary: str = "1.41", content: bool = False) -> None:
        self._stream, self._renamed, self._content = stream, RENAMED[vocabulary], content
        self._summariser = Summariser()
        self.summary = self._summariser.summary
        #: The body of the request, if its content is wanted and not too long.
        self._body: Any = ABSENT
        #: When the stream began and when its client left, in microseconds since 1970.
        self._began_us, self._left_us = 0, 0
        #: The number of each record, and when it was made.
        self._numbers, self._times_us = array("Q"), array("Q")
        #: What happened in each attempt; whether it has had content, and its last sign of life.
        self._events: list[list[Event]] = []
        self._has_content, self._heard_us = False, 0

    def take(self, record: Record) -> None:
        """Add a record."""
        kind, summary = record.kind, self.summary
        self._summariser.feed(record)
        if kind == "open":
            exact, seconds = record.keys.get("created_us"), record.keys.get("created")
            began_us = exact if type(exact) is int else seconds * 1_000_000 if type(seconds) is int else 0
            self._began_us = min(max(0, began_us), 2**62)  # it may be junk
        now_us = self._began_us + record.t
        self._numbers.append(record.n)
        self._times_us.append(now_us)
        if kind == "request" and self._content and len(record.raw or b"") <= OTEL_CONTENT_BYTES_MAX:
            self._body = record.read().value
        elif kind == "gone":
            self._left_us = now_us
        elif kind == "attempt":
            self._events.append([])
            self._has_content, self._heard_us = False, now_us
        if kind in ("body", "failed", "end") or (kind == "frame" and speaks(record, hermes=summary.hermes)):
            if self._events and now_us - self._heard_us > OTEL_SILENCE_US:
                silence = {"wiretape.silence": (now_us - self._heard_us) / 1e6}
                self._events[-1].append((self._heard_us, "wiretape.silence", silence))
            self._heard_us = now_us
        if self._events and not self._has_content and summary.first_content_us is not None:
            self._has_content = True
            self._events[-1].append((now_us, "wiretape.first_content", {}))

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results in the request whose calls were found; `stream` made the call."""
        results = map(as_object, as_list(self.summary.results.get("results")))
        return [row for row in results if as_text(row.get("stream")) and type(row.get("duration_ms")) is int]

    def spans(self, traces: Mapping[str, Trace]) -> list[dict[str, Any]]:
        """Return the spans, none if the caller does not export its own; `traces` are those of `results`."""
        summary, ending = self.summary, self.summary.ending
        trace = Trace.on_tape(self._stream, summary.opening.get("trace"))
        if not trace.sampled:
            return []
        error = "" if ending in (None, "completed") else str(ending)
        spans, parent = [self._server(trace, error)], trace.server
        if summary.dialect and summary.attempts:
            spans.append(self._operation(trace))
            parent = trace.span("operation")
        spans += (self._attempt(trace, parent, number, error) for number in range(1, len(summary.attempts) + 1))
        return [*spans, *(self._tool(result, trace, traces) for result in self.results)]

    def _server(self, trace: Trace, error: str) -> dict[str, Any]:
        summary, request, left_us = self.summary, self.summary.request, self._left_us
        path, method = as_text(request.get("path")).partition("?")[0], as_text(request.get("method"))
        headers = dict(each for each in as_list(request.get("headers")) if is_list(each) and len(each) == 2)
        # The rest of a path that Wiretape does not know may hold ids.
        name = f"{method} {path if summary.dialect else '/'.join(path.split('/')[:3])}"
        known = {"http.request.method": method, "http.response.status_code": summary.status, "url.path": path}
        known |= {"user_agent.original": headers.get("user-agent"), "error.type": error}
        known |= {"wiretape.stream.id": self._stream, "wiretape.ending": summary.ending}
        events: list[Event] = [(left_us, "wiretape.gone", {})] if left_us else []
        times_us = self._began_us, left_us or self._began_us + summary.t
        return span((trace.id, trace.server, trace.parent), name, SERVER, times_us, known, events)

    def _operation(self, trace: Trace) -> dict[str, Any]:
        summary, renamed, events = self.summary, self._renamed, list[Event]()
        repairs, silence_us = sum(self._summariser.repairs.values()), summary.longest_silence_us
        known = operation_attributes(summary, self._stream, repairs=repairs, silence_us=silence_us)
        if self._content:
            known |= input_messages(summary.dialect, self._body) | output_messages(summary, renamed)
        for call in summary.wire.all_calls():
            named = {"gen_ai.tool.call.id": call.id, "gen_ai.tool.name": call.name}
            for n, state in call.moves:
                at_us = self._times_us[min(bisect_left(self._numbers, n), len(self._times_us) - 1)]
                lost = call.reason if state in (State.DROPPED, State.MALFORMED) else ""
                moved = {**named, "wiretape.tool.state": state.value, "wiretape.tool.reason": lost}
                events.append((at_us, "wiretape.tool_call", moved))
        ids, name = (trace.id, trace.span("operation"), trace.server), f"chat {as_text(summary.facts.get('model'))}"
        times_us = self._began_us + summary.attempts[0]["at_us"], self._began_us + summary.t
        known = {renamed.get(name, name): value for name, value in known.items()}
        return span(ids, name.strip(), CLIENT, times_us, known, events)

    def _attempt(self, trace: Trace, parent: str, number: int, error: str) -> dict[str, Any]:
        summary, attempt, events = self.summary, self.summary.attempts[number - 1], self._events[number - 1]
        failure, status, last = as_object(attempt.get("failure")), attempt.get("status"), len(summary.attempts)
        end_us = self._began_us + failure.get("at_us", summary.t)
        if number == last and error and summary.end is not None:
            cut = {"wiretape.ending": error, "wiretape.cause": summary.end.keys.get("cause")}
            events = [*events, (end_us, "wiretape.cut", cut)]
        why = as_text(failure.get("ending")) or (error if number == last else "")
        why = str(status) if type(status) is int and status >= 400 else why
        method = as_text(summary.request.get("method"))
        known = {"http.request.method": method, "http.response.status_code": status, "error.type": why}
        known |= {"http.request.resend_count": number - 1 or None, **address_of(attempt.get("upstream"))}
        known |= {"wiretape.stream.id": self._stream, "wiretape.attempt": number}
        ids, times_us = (trace.id, trace.span("attempt", number), parent), (self._began_us + attempt["at_us"], end_us)
        return span(ids, method or "HTTP", CLIENT, times_us, known, events)

    def _tool(self, result: Mapping[str, Any], trace: Trace, traces: Mapping[str, Trace]) -> dict[str, Any]:
        """Return what ran from the hand-over of a call until this stream brought its result."""
        call, name, made_by = as_text(result.get("id")), as_text(result.get("name")), result["stream"]
        maker = traces.get(made_by) or Trace.on_tape(made_by, None)
        known: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        known |= {"gen_ai.tool.call.id": call}
        known |= {"gen_ai.tool.call.result": result.get("output") if self._content else None}
        known |= {"error.type": "tool_error" if result.get("failed") is True else ""}
        ids, asked_by = (maker.id, maker.span("execute_tool", call), maker.span("operation")), maker.span("operation")
        times_us = self._began_us - result["duration_ms"] * 1_000, self._began_us
        links = (maker.id, asked_by), (trace.id, trace.span("operation"))
        return span(ids, f"execute_tool {name}", INTERNAL, times_us, known, links=links)
