"""The log: one line per event without secrets, and no waiting, with any stderr (P19)."""

import json
import os
import select
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.proxy.control_cases import ME
from tests.proxy.store_cases import CREATED
from wiretape.proxy.config.model import Secret
from wiretape.proxy.limits import LOG_CLOSE_S, LOG_LINES_MAX, LOG_VALUE_CHARS_MAX
from wiretape.proxy.log import Log
from wiretape.proxy.relay.recording import Ended
from wiretape.proxy.store.catalogue_row import CallRow, CatalogueRow, StreamRow

NOON = 1_795_003_200.25


@contextmanager
def pipe() -> Generator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def said(say: Callable[[Log], None], **options: Any) -> str:
    """Return what was written."""
    with pipe() as (reading, writing):
        log = Log(writing, now=lambda: NOON, **options)
        say(log)
        log.close()
        os.set_blocking(reading, False)
        try:
            return os.read(reading, 1 << 20).decode()
        except BlockingIOError:
            return ""


def json_of(say: Callable[[Log], None], **options: Any) -> list[dict[str, Any]]:
    text = said(say, human=False, **options)
    assert text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_terminal_gets_words() -> None:
    text = said(lambda log: log.warn("ended", model="a b", route="x", empty="", n=5), human=True)
    assert text == '2026-11-18T12:00:00.250Z warn  ended model="a b" route=x empty="" n=5\n'


@pytest.mark.parametrize("human", [True, False])
def test_no_text_breaks_a_line_or_controls_a_terminal(human: bool) -> None:
    nasty = ["a\r\nfake: line", "\x1b[2J\x07", "\u2028\u2029\x85", "\ud83d", "\x9b31m", "\x00", '"quoted"', "\u202eabc"]

    def say(log: Log) -> None:
        for value in nasty:
            log.info("x", value=value)

    *lines, rest = said(say, human=human).split("\n")
    assert (len(lines), rest) == (len(nasty), "")
    assert all(line.isprintable() for line in lines)
    assert human or [json.loads(line)["value"] for line in lines] == nasty


def test_lines_below_the_level_are_left_out() -> None:
    def say(log: Log) -> None:
        log.info("a")
        log.warn("b")
        log.error("c")

    assert [line["event"] for line in json_of(say)] == ["a", "b", "c"]
    assert [line["event"] for line in json_of(say, level="warn")] == ["b", "c"]
    assert [line["level"] for line in json_of(say, level="error")] == ["error"]


def test_values_are_harmless_words_cut_at_a_bound() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    bound = "é" * LOG_VALUE_CHARS_MAX
    given = ["a key of 5", "tokens=12 keys", "sky-high-and-wide-open", "task-1234567890123456", "monkey=1", bound]

    def say(log: Log) -> None:
        for value in (*given, bound + "é", Mute(), ["x"]):
            log.info("x", value=value)

    lines = [line["value"] for line in json_of(say)]
    assert lines == [*given, bound + "…", "<Mute: RuntimeError>", "['x']"]


CANARY = "CaNaRy0123456789CaNaRy"
HOLDERS = [
    {"authorization": CANARY},
    {"api_key": CANARY},
    {"x-api-key": CANARY},
    {"ocp-apim-subscription-key": CANARY},
    {"headers": [("authorization", CANARY)]},
    {"set_cookie": CANARY},
    {"client_secret": CANARY},
    {"text": f"refused: Authorization: Bearer {CANARY} was wrong"},
    {"text": f"basic {CANARY}=="},
    {"text": f"https://x/v1?api-version=1&key={CANARY}&b=1"},
    {"text": f"?access_token={CANARY}"},
    {"text": f"sk-proj-{CANARY}"},
    {"text": f"AIzaSy{CANARY}"},
    {"text": f"http://user:{CANARY}@proxy:3128"},
    {"text": f"the one of the configuration: {CANARY[:12]}"},
    {"text": f"sk-{CANARY}".encode()},
    {"secret_object": Secret(CANARY)},
    {"text": Secret(CANARY)},
]


@pytest.mark.parametrize("fields", HOLDERS, ids=[f"{number}" for number in range(len(HOLDERS))])
@pytest.mark.parametrize("human", [True, False])
def test_secrets_are_masked(fields: dict[str, object], human: bool) -> None:
    text = said(lambda log: log.error("x", **fields), human=human, secrets=[Secret(CANARY[:12])])
    assert "aNaRy" not in text
    assert "***" in text


def test_stream_is_one_line_and_a_warning_if_it_ended_badly() -> None:
    row = StreamRow(
        stream="s1",
        created=CREATED,
        caller=ME,
        route="",
        dialect="chat",
        model="m",
        ending="completed",
        input_tokens=3,
        first_content_us=1_500,
        duration_us=2_000_000,
    )
    lost = CallRow(caller=ME, call="c1", stream="s1", name="write_file", state="dropped", handed_us=1)
    good, bad = Ended(CatalogueRow(row, ()), 1, 900, "eof"), Ended(CatalogueRow(row, (lost,)), 2, 900, "reset")

    def say(log: Log) -> None:
        log.ended(good)
        log.ended(bad)

    first, second = json_of(say)
    assert first == {
        "time": "2026-11-18T12:00:00.250Z",
        "level": "info",
        "event": "stream_ended",
        "stream": "s1",
        "model": "m",
        "ending": "completed",
        "cause": "eof",
        "attempts": 1,
        "ttft_ms": 1.5,
        "duration_ms": 2000.0,
        "input_tokens": 3,
        "tape_bytes": 900,
    }
    assert (second["level"], second["tools_lost"], second["attempts"]) == ("warn", "write_file", 2)
    assert ME not in json.dumps([first, second])


# -- P19 --------------------------------------------------------------------------------------------------------------


def until(true: Callable[[], bool]) -> None:
    """Wait for another thread."""
    for _ in range(2_000):
        if true():
            return
        select.select([], [], [], 0.005)
    raise AssertionError("it never came")


def fill(writing: int) -> int:
    os.set_blocking(writing, False)
    filled = 0
    try:
        while True:
            filled += os.write(writing, b"#" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return filled


def drained(reading: int, *marks: bytes) -> bytes:
    """Return what can be read; with marks, at least up to all of them."""
    os.set_blocking(reading, False)
    data = b""
    for _ in range(2_000):
        try:
            while part := os.read(reading, 1 << 20):
                data += part
        except BlockingIOError:
            pass
        if all(mark in data for mark in marks):
            return data
        select.select([reading], [], [], 0.005)
    raise AssertionError("it never came")


def test_full_pipe_loses_lines_and_reports_how_many() -> None:
    with pipe() as (reading, writing):
        log = Log(writing, human=False)
        fill(writing)
        log.info("first")
        until(lambda: not log.waiting)
        began = time.perf_counter()
        for number in range(LOG_LINES_MAX + 500):
            log.info("line", number=number)
        assert time.perf_counter() - began < 5, "no line waits for a reader"
        assert log.dropped == 500
        data = drained(reading, b'"number": %d}\n' % (LOG_LINES_MAX - 1))
        lines = [json.loads(line) for line in data.lstrip(b"#").splitlines()]
        assert [line["event"] for line in lines[:3]] == ["first", "log_lines_lost", "line"]
        assert lines[1]["lines"] == 500
        assert [line["number"] for line in lines[2:]] == list(range(LOG_LINES_MAX))
        log.close()
        assert log.dropped == 500


def test_lines_that_cannot_be_written_are_counted_and_reported_later() -> None:
    with pipe() as (reading, writing):
        elsewhere = os.open(os.devnull, os.O_RDONLY)  # cannot be written to
        mine = os.dup(elsewhere)
        log = Log(mine, human=False)
        log.info("lost")
        log.info("lost")
        until(lambda: log.dropped == 2)
        os.dup2(writing, mine)
        log.info("there")
        log.close()
        lines = [json.loads(line) for line in drained(reading).splitlines()]
        assert [(line["event"], line.get("lines")) for line in lines] == [("log_lines_lost", 2), ("there", None)]
        os.close(mine)
        os.close(elsewhere)


def test_close_waits_a_bounded_time_and_accepts_no_more() -> None:
    took_s: list[float] = []
    while len(took_s) < 3 and min(took_s, default=9.0) >= LOG_CLOSE_S + 1:  # a busy machine adds to it, not each time
        with pipe() as (reading, writing):
            log = Log(writing, human=False)
            fill(writing)
            log.info("x")
            began = time.perf_counter()
            log.close()
            log.close()
            took_s.append(time.perf_counter() - began)
            log.info("y")
            assert b'"y"' not in drained(reading, b'"x"}\n')
    assert LOG_CLOSE_S <= min(took_s) < LOG_CLOSE_S + 1
