"""Writes what a stream's records say and shows what comes of them: batches, the client's status, the one ending

Nothing is shown before it is written; whatever state a stream is in, its tape gets its end and its client its error.
"""

from collections.abc import Sequence
from typing import Any

import trio

from wiretape.events.tape.record import Record

from ..upstream.body import Body
from ..upstream.errors import WireError
from ..upstream.exchange import End
from .attempts import Decision, Failure
from .deadlines import Deadlines
from .http_responses import Answer
from .live import Live
from .outcome import exchange_ending, our_error, relayed_head, stream_head
from .recording import Taping
from .services import Log
from .stream_request import Order
from .upstream_request import Asking
from .upstream_response import Asked
from .verdict import CAUSE_OF, OUR_CAUSES, WHOLE, chat_cause

__all__ = ["Scribe"]


class Scribe:
    """One stream's; its pump decides, this writes it down."""

    def __init__(
        self, order: Order, live: Live, taping: Taping, asking: Asking, deadlines: Deadlines, log: Log
    ) -> None:
        #: Of the last attempt: the body of its answer, and what broke its connection.
        self.body: Body | None = None
        self.fault: WireError | None = None
        #: What the ending says beside the flags of the fold.
        self.flags: dict[str, None] = {}
        self.cause = ""
        #: An answer that passes as it came has come to its end: only then may it be ended as a whole one.
        self._whole = False
        self._gone = False
        #: What goes out with the next write: frames, up to which record, and the head where they are the first.
        self._frames: list[bytes] = []
        self._frames_n = 0
        self._first: Answer | None = None
        self._order = order
        self._live = live
        self._taping = taping
        self._asking = asking
        self._deadlines = deadlines
        self._log = log

    async def batch(self, records: Sequence[Record]) -> None:
        """Emitted, written, and only then shown."""
        await self.write(records, self._taping.emitted(records))

    async def write(self, records: Sequence[Record], frames: list[bytes]) -> None:
        """What was emitted on account of these records is shown when they are written."""
        if records:
            self._hold(records, frames)
            await self._taping.write(())
            self._show()

    def _hold(self, records: Sequence[Record], frames: list[bytes]) -> None:
        """To be written and shown with what is written next."""
        taping = self._taping
        self._frames_n = records[-1].n
        if frames and self._unanswered:
            self._first = self._head()
            # At the time of its frames: more of the same read may follow.
            commit = taping.recorder.record("commit", records[-1].t, {"status": self._first.status})
            frames += taping.emitted([commit], records)
            records = [*records, commit]
        taping.hold(records)
        self._frames += frames

    @property
    def _unanswered(self) -> bool:
        """Whether the client's status is still free."""
        return self._live.answer is None and self._first is None

    def _show(self) -> None:
        """What was held."""
        live = self._live
        if self._first is not None:
            live.commit(self._first)
            self._first = None
        if self._frames:
            frames, self._frames = self._frames, []
            live.show(frames, self._frames_n)
            self._deadlines.shown_at = trio.current_time()

    async def commit(self, answer: Answer, body: bytes | None = None) -> None:
        """The client's status is fixed, with a body where that is the whole answer."""
        taping = self._taping
        record = taping.record("commit", {"status": answer.status}, body)
        frames = taping.emitted([record])
        await taping.write([record])
        self._live.commit(answer)
        if frames:
            self._live.show(frames, record.n)

    async def relay(self, answered: Asked) -> None:
        """The client gets the upstream's own status."""
        stream = self._live.stream
        await self.commit(relayed_head(answered.status, answered.headers, stream, decoded=answered.decoded))

    def note(self, attempt: int, failure: Failure, decision: Decision) -> None:
        """An attempt delivered nothing; what follows it."""
        keys: dict[str, Any] = {
            "attempt": attempt,
            "ending": failure.ending,
            "message": failure.message,
            "next": decision.next.value,
        }
        if failure.status:
            keys["status"] = failure.status
        if decision.after_s:
            keys["after_ms"] = round(decision.after_s * 1_000)
        keys |= _framed(self.body)
        self._taping.later(self._taping.record("failed", keys))

    async def give_up(self, failure: Failure, decision: Decision, said: bytes) -> None:
        """No attempt is left: an HTTP error where the status is still free, else the error goes into the stream. So it
        does behind a call that was held: the end of that is told as `on_partial` says, and after an HTTP error clients
        that know no `x-should-retry` ask again, LangChain.js seven times.
        """
        if self._unanswered and next(self._taping.emitter.wire.calls(), None) is None:
            answer = self._asking.answer_of(failure, decision, self._live.stream, said)
            await self.commit(answer, answer.body)
        await self.finish("status" if failure.answered else CAUSE_OF.get(failure.ending, "internal"))

    async def finish(self, cause: str) -> None:
        """The one ending."""
        taping, live = self._taping, self._live
        if taping.recorder.ended:
            return
        self.cause = cause
        if cause in OUR_CAUSES and self._unanswered and not live.left:
            answer = our_error(cause, live.stream)
            await self.commit(answer, answer.body)
        await self.batch(taping.recorder.rest(taping.t()))
        said = self._said(cause)
        ending, flags = self._ending(said)
        if ending == "completed":
            self._asking.worked()
        if self._unanswered and not live.left and cause != "client_gone":
            await self.commit(self._head())
        if live.left and live.sent_n < live.shown_n:  # while something was written, and nobody attends any more
            await self.gone()
        untaped = ["untaped"] if taping.untaped else []
        keys = {"cause": said, "ending": ending, "flags": [*flags, *self.flags, *untaped], **_framed(self.body)}
        record = taping.recorder.end(taping.t(), keys)
        self._frames += taping.emitted([record])
        self._frames_n = record.n
        cut = self._cut(cause, ending)
        self._whole = not cut
        await taping.write([record])
        self._show()
        live.end(cut=cut)

    def _said(self, cause: str) -> str:
        """The cause as the tape has it: whoever reads that must come to the same ending."""
        if self._order.dialect != "chat":
            return cause
        # All of it has passed, and nobody read whether it said its last word.
        unread = cause in ("framed", "closed") and self._taping.recorder.decoder.overflow
        return "limit" if unread or cause == "upload" else chat_cause(cause)

    def _ending(self, said: str) -> tuple[str, Sequence[str]]:
        if self._order.dialect == "chat":
            return self._taping.ending(said)
        return exchange_ending(self._asking.status, said, cut=self.fault is not None)

    def _cut(self, cause: str, ending: str) -> bool:
        """Whether the client's connection has to break: where the answer passed as it came, and its end never did."""
        order = self._order
        if (order.streams and not order.verbatim) or self._asking.gave_up or cause in WHOLE:
            return order.verbatim and cause == "closed" and self._live.shown < _promised(self._live.answer)
        if cause == "eof" and self.fault is None:  # ended by a close, which chat alone can tell from a cut
            return ending not in ("completed", "upstream_error")
        return True

    def _head(self) -> Answer:
        return stream_head(self._asking.headers, self._live.stream)

    async def last(self, cause: str) -> None:
        """Whatever state it is in, the tape gets its end and the client its error."""
        if self._taping.failed:
            await self.without("failed_here", "internal")
            return
        try:
            await self.finish(cause)
        except Exception as error:  # noqa: BLE001 - the emitter itself may be what failed
            self._log.error("ending_failed", stream=self._live.stream, why=repr(error))
            await self.without("failed_here", "internal")

    async def without(self, flag: str, reason: str) -> None:
        """The log failed and the stream stops, or our own reading of it did: closed as far as the disk lets us."""
        live = self._live
        answer = our_error(reason, live.stream) if live.answer is None else None
        closed = await self._taping.closing(live.shown, flag, answer, held=self._first is not None)
        self.cause = self.cause if closed.as_meant else "internal"
        if closed.committed:
            assert self._first is not None, "a status was held"
            live.commit(self._first)
        elif answer is not None and not live.left:
            live.commit(answer)
            live.show([answer.body], 0)
            live.end(cut=False)
            return
        behind = closed.behind
        if not closed.tells and self._order.streams:
            behind = b"data: %b\n\n" % our_error("internal", live.stream).body
        if behind:
            live.show([behind], live.shown_n)
        live.end(cut=self._order.verbatim or not (self._order.streams or (closed.tells and self._whole)))

    async def gone(self) -> None:
        """The client has left: written once, whoever saw it. Of an upload a piece may be on its way to the tape."""
        taping = self._taping
        async with taping.turn:
            if self._gone:
                return
            self._gone = True  # not before: who is called off while it waits has written nothing
            record = taping.record("gone", {"at": self._live.sent_n})
            taping.emitted([record])
            await taping.write([record])

    async def keepalive(self, now: float) -> None:
        """A comment goes out; where no status was given yet, it is 200 from now on."""
        taping, live = self._taping, self._live
        records = [taping.record("keepalive")]
        answer = None
        if live.answer is None:
            answer = self._head()
            records.append(taping.record("commit", {"status": answer.status}))
        taping.emitted(records)
        await taping.write(records)
        self._deadlines.shown_at = now
        if answer is not None:
            live.commit(answer)
        live.keepalive()


def _framed(body: Body | None) -> dict[str, Any]:
    """Whether the body of the last answer ended by its own framing, whatever we made of it; else what ended it, if that
    was not us. A replay cannot tell a cut from an end without it.
    """
    if body is None:
        return {}
    if body.fault is not None:
        return {"framed": False, "broke": body.fault.ending}
    return {"framed": False, "broke": "closed"} if body.end is End.CLOSED else {"framed": body.end is End.FRAMED}


def _promised(answer: Answer | None) -> int:
    """The length that a relayed head says."""
    headers = answer.headers if answer is not None else ()
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
