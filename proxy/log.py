"""The log: one line a record on stderr, JSON or text for a person; it never waits, and never says a secret.

Lines go through a bounded queue to a thread of their own, the only one that a full pipe ever stops. O_NONBLOCK would be
shorter, and would reach the terminal of whoever started us, since it belongs to the open file and not to our number of
it. A line that finds the queue full, or stderr gone, is lost and counted, and the count is written before the next line
that can be (P19). Behind what it wrote the thread naps for a moment: woken for each of many streams it took 120 us of
CPU a line, most of it for the wake and the wait for the interpreter; now it is 25 us.
"""

import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Literal

from .key_patterns import MASK, is_secret_name, mask_keys
from .limits import LOG_CLOSE_S, LOG_GATHER_S, LOG_LINES_MAX, LOG_TOGETHER_MAX, LOG_VALUE_CHARS_MAX

if TYPE_CHECKING:
    from .relay.registry import Ended

__all__ = ["Level", "Log", "stderr_fd"]

Level = Literal["info", "warn", "error"]

_RANKS: Final[Mapping[str, int]] = {"info": 0, "warn": 1, "error": 2}


class Log:
    """`info`, `warn` and `error` from any thread, at no wait; `close` writes what there is, for a moment at most."""

    def __init__(
        self,
        fd: int | None,
        *,
        human: bool | None = None,
        level: Level = "info",
        mask: Callable[[str], str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`fd` stays the caller's; None is nowhere. `mask` knows the secrets of the configuration."""
        self._fd = fd
        self._human = human if human is not None else fd is not None and _is_terminal(fd)
        self._from = _RANKS[level]
        self._mask = mask
        self._now = now
        #: Lines lost because too many waited, and because they could not be written; and how many were told of.
        self._crowded = self._unwritten = self._told = 0
        self._closing = False
        self._hurry = Event()
        self._queue: Queue[tuple[float, str, str, dict[str, object]] | None] = Queue(LOG_LINES_MAX)
        self._thread = Thread(target=self._run, name="wiretape-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines lost since the start."""
        return self._crowded + self._unwritten

    @property
    def waiting(self) -> int:
        """Lines that the thread has not come to yet."""
        return self._queue.qsize()

    def info(self, event: str, /, **fields: object) -> None:
        """Something happened."""
        self._say("info", event, fields)

    def warn(self, event: str, /, **fields: object) -> None:
        """Somebody should know."""
        self._say("warn", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Somebody should do something."""
        self._say("error", event, fields)

    def warning(self, text: str) -> None:
        """A sentence for a person: what a store says."""
        self.warn("warning", text=text)

    def ended(self, ended: "Ended") -> None:
        """One line a stream; a warning where it did not end well."""
        row, calls, _ = ended.catalogue_row
        lost = [call.name for call in calls if call.state in ("dropped", "malformed")]
        fields: dict[str, object] = {
            "stream": row.stream,
            "route": row.route,
            "model": row.model,
            "ending": row.ending,
            "flags": ",".join(row.flags),
            "cause": ended.cause,
            "attempts": ended.attempts,
            "ttft_ms": _milliseconds(row.first_content_us),
            "duration_ms": _milliseconds(row.duration_us),
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "tape_bytes": ended.tape_bytes,
            "tools": len(calls) or None,
            "tools_lost": ",".join(lost),
        }
        level = "info" if row.ending == "completed" and not lost else "warn"
        self._say(level, "stream_ended", {name: value for name, value in fields.items() if value not in ("", None)})

    def close(self) -> None:
        """Nothing more is said. Blocks for `LOG_CLOSE_S` at most; a pipe that nobody reads keeps the rest."""
        if self._closing:
            return
        self._closing = True
        with suppress(Full):  # then it ends when all that waits is written
            self._queue.put_nowait(None)
        self._hurry.set()
        self._thread.join(LOG_CLOSE_S)

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        if _RANKS[level] < self._from or self._closing:
            return
        try:
            self._queue.put_nowait((self._now(), level, event, fields))
        except Full:
            self._crowded += 1

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        last = False
        while not last:
            gathered = [self._queue.get()]
            while gathered[-1] is not None and len(gathered) < LOG_TOGETHER_MAX:
                try:
                    gathered.append(self._queue.get_nowait())
                except Empty:
                    break
            last = gathered[-1] is None or (self._closing and self._queue.empty())
            self._put([self._line(*said) for said in gathered if said is not None])
            if not last and len(gathered) < LOG_TOGETHER_MAX:
                self._hurry.wait(LOG_GATHER_S)

    def _put(self, lines: Sequence[bytes]) -> None:
        missing = self.dropped - self._told
        if missing and lines and self._write([self._line(self._now(), "warn", "log_lines_lost", {"lines": missing})]):
            self._told += missing
        self._unwritten += len(lines) - self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> int:
        """How many went out whole; a half one is ended by the next that can be written."""
        if self._fd is None:
            return 0
        left = memoryview(b"".join(lines))
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:  # somebody else made it so
                _wait_writable(self._fd)
            except OSError:
                break
        whole, unsent = len(lines), len(left)
        while unsent > 0:
            whole -= 1
            unsent -= len(lines[whole])
        return whole

    def _line(self, at: float, level: str, event: str, fields: Mapping[str, object]) -> bytes:
        whole, fraction = divmod(int(at * 1000), 1000)
        when = f"{_second(whole)}.{fraction:03}Z"
        clean = {name: self._clean(name, value) for name, value in fields.items()}
        if self._human:
            words = " ".join(f"{name}={_word(value)}" for name, value in clean.items())
            return f"{when} {level:<5} {event} {words}".rstrip().encode("utf-8", "replace") + b"\n"
        return json.dumps({"time": when, "level": level, "event": event} | clean).encode() + b"\n"

    def _clean(self, name: str, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if is_secret_name(name):
            return MASK
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else _text(value)
        text = mask_keys(self._mask(text) if self._mask is not None else text)
        return text if len(text) <= LOG_VALUE_CHARS_MAX else f"{text[:LOG_VALUE_CHARS_MAX]}…"


@lru_cache(maxsize=1)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


def stderr_fd() -> int | None:
    """A number of our own for stderr; None where the process was started without one.

    Its own number, because 2 is given to the next file that is opened when somebody closes it: a tape, perhaps.
    """
    if sys.__stderr__ is None:
        return None
    try:
        return os.dup(2)
    except OSError:
        return None


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _wait_writable(fd: int) -> None:
    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    waiting.poll()


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - whatever a caller's object does, the log goes on
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _milliseconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def _word(value: object) -> str:
    """For a terminal: no character that it would obey."""
    text = str(value)
    plain = text.isprintable() and text and not set(text) & set(" \"'=")
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
