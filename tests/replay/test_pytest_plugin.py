"""The plugin as users run it: projects of a few lines, each in its own run of pytest."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import httpcore
import pytest

from tests.support.tapes import Turn, calls, conversation, text, write
from wiretape.replay.compare.levels import ending_of
from wiretape.replay.playback.script import Fault, Request, Script, event_stream
from wiretape.replay.pytest_plugin import tape as pytest_tape
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.sealed.files import load

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

#: An inner run drops modules that it imported first. A second copy of httpcore would raise errors unknown to httpx.
IMPORTED = (httpcore, pytest_tape)

CLIENT = """
import httpx, json, pytest

def ask(url, question="hi", **more):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}], **more}
    return httpx.post(url + "/chat/completions", json=body)
"""
TWO_LINES = """
@pytest.mark.tape
def test_weather(tape):
    assert "sunny" in ask(base_url := tape.url).text
"""


@pytest.fixture(autouse=True)
def in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record nothing unless a test asks for it, wherever our own suite runs."""
    monkeypatch.setenv("CI", "1")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", *options)


def project(pytester: pytest.Pytester, source: str, **tapes: bytes) -> Path:
    """Write one module with the client, and tapes by the name of their test."""
    module = pytester.makepyfile(test_it=CLIENT + source)
    for name, sealed in tapes.items():
        write(module.parent / "tapes" / "test_it" / f"{name}.tape", sealed)
    return module.parent


ONE = conversation(text("hi", "sunny"))
#: Places to cut it, and the whole.
ONE_PREFIXES = len(text("hi", "sunny").reads) + 2


def test_replays_the_tape_named_like_the_test(pytester: pytest.Pytester) -> None:
    project(pytester, TWO_LINES, test_weather=conversation(text("hi", "sunny", " day")))
    run(pytester).assert_outcomes(passed=1)


def test_missing_tape_fails_and_names_the_command(pytester: pytest.Pytester) -> None:
    project(pytester, TWO_LINES)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "there is no tape *tapes/test_it/test_weather.tape",
            "to record it: pytest test_it.py::test_weather --tape=rewrite --tape-upstream https://api.example.com/v1",
        ]
    )


def test_request_without_a_recording_fails_the_test(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.tape
def test_weather(tape):
    ask(tape.url)
    assert ask(tape.url, "something else").status_code == 599
"""
    project(pytester, source, test_weather=conversation(text("hi", "sunny")))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "a request is not on the tape",
            "*test_weather.tape (--tape=replay)",
            "1. POST /v1/chat/completions (* 1 messages) -> stream 1, completed",
            "2. POST /v1/chat/completions (* 1 messages) -> no recorded response",
            '*messages*.content: "hi" -> "something else"',
            "to record it: pytest test_it.py::test_weather --tape=rewrite *",
        ]
    )


LEFT = """
@pytest.mark.tape(MARKED)
def test_weather(tape):
    ask(tape.url)
"""


def test_unused_stream_fails_the_test_unless_partly(pytester: pytest.Pytester) -> None:
    sealed = conversation(text("hi", "sunny"), text("more", "rain"))
    project(pytester, LEFT.replace("MARKED", ""), test_weather=sealed)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["1 of 2 recorded streams were not asked for", "not asked for: stream 2: POST /v1/chat/completions *"]
    )
    project(pytester, LEFT.replace("MARKED", "partly=True"), test_weather=sealed)
    run(pytester).assert_outcomes(passed=1)


def test_marker_names_one_or_several_tapes(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.tape("one.tape", "more/two.tape")
def test_both(tape):
    assert "sunny" in ask(tape.url).text and "rain" in ask(tape.url, "more").text

@pytest.mark.tape("one.tape")
class TestOne:
    def test_it(self, tape):
        assert "sunny" in ask(tape.url).text
"""
    folder = project(pytester, source) / "tapes"
    write(folder / "one.tape", conversation(text("hi", "sunny")))
    write(folder / "more" / "two.tape", conversation(text("more", "rain")))
    run(pytester).assert_outcomes(passed=2)


NAMED = """
@pytest.mark.parametrize("question", ["hi", "how / are you"])
def test_each(tape, question):
    ask(tape.url, question)

class TestThese:
    @pytest.mark.tape(partly=True)
    def test_it(self, tape):
        ask(tape.url)
"""


def test_every_set_of_parameters_has_its_own_file(pytester: pytest.Pytester) -> None:
    project(pytester, NAMED, **{"test_each-hi": conversation(text("hi", "1")), "TestThese.test_it": ONE})
    result = run(pytester)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["there is no tape *tapes/test_it/test_each-how-are-you-????????.tape"])


LIKE = """
@pytest.mark.parametrize("question", ["a", "a-", "a.", "-a", "a b", ""])
def test_each(tape, question):
    ask(tape.url, question)

class TestOne:
    class TestIn:
        def test_it(self, tape):
            ask(tape.url, "one")

class TestTwo:
    class TestIn:
        def test_it(self, tape):
            ask(tape.url, "two")
"""


def test_similar_names_get_different_files(pytester: pytest.Pytester, upstream: "Upstream") -> None:
    folder = project(pytester, LIKE) / "tapes/test_it"
    run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url).assert_outcomes(passed=8)
    run(pytester).assert_outcomes(passed=8)
    names = {file.name for file in folder.iterdir()}
    assert len(names) == 8
    assert names > {"test_each-a.tape", "TestOne.TestIn.test_it.tape", "TestTwo.TestIn.test_it.tape"}


def test_tests_with_one_file_fail_unless_they_name_it(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.tape(MARKEDprefixes="frames")
def test_each(tape, number):
    try:
        ask(tape.url)
    except httpx.TransportError:
        pass
"""
    project(pytester, source.replace("MARKED", ""), test_each=ONE)
    result = run(pytester)
    result.assert_outcomes(failed=2 * ONE_PREFIXES)
    result.stdout.fnmatch_lines(
        ["*test_each.tape is the tape of test_it.py::test_each?* too: name a file in the marker of each"]
    )
    project(pytester, source.replace("MARKED", "'test_it/test_each.tape', "))
    run(pytester).assert_outcomes(passed=2 * ONE_PREFIXES)


def test_tape_shows_requests_and_results(pytester: pytest.Pytester) -> None:
    source = """
def test_weather(tape):
    assert tape.fold.text == "sunny day"
    assert tape.sent == [] and tape.answers == []
    ask(tape.url, temperature=0)
    (sent,) = tape.sent
    assert (sent.method, sent.path, sent.json["temperature"]) == ("POST", "/v1/chat/completions", 0)
    assert sent.headers["user-agent"].startswith("python-httpx/")
    assert tape.fold.ending == "completed" and tape.fold.finish == "stop" and tape.fold.warnings == []
    assert [type(event).__name__ for event in tape.events].count("TextDelta") == 2
    assert [round(t, 3) for t, _ in tape.timing] == [0.251, 0.501, 0.751, 1.001]
    assert tape.env["OPENAI_BASE_URL"] == tape.url == tape.root + "/v1"
    assert tape.env["ANTHROPIC_BASE_URL"] == tape.root
"""
    sealed = conversation(text("hi", "sunny", " day", gap_s=0.25)).replace(
        b'"stream":true', b'"temperature":0,"stream":true'
    )
    project(pytester, source, test_weather=sealed)
    run(pytester).assert_outcomes(passed=1)


# -- recording --------------------------------------------------------------------------------------------------------


class Upstream:
    """A live upstream in its own thread."""

    def __init__(self) -> None:
        self.thread = Thread()
        self.asked = 0
        self.says = text("hi", "sunny", " day")
        #: Responses to requests that contain these words.
        self.each: dict[bytes, Turn] = {}
        #: Ends each response after its first piece.
        self.fault: Fault | None = None
        self.url = self.thread.serve("up", self._choose) + "/v1"

    def _choose(self, request: Request) -> Script:
        self.asked += 1
        says = next((says for words, says in self.each.items() if words in request.body), self.says)
        reads = [data for _, data in says.reads]
        return event_stream(reads[:1], end=self.fault) if self.fault is not None else event_stream(reads)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    up = Upstream()
    yield up
    up.thread.close()


def test_missing_tape_is_recorded_once(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")
    file = project(pytester, TWO_LINES) / "tapes/test_it/test_weather.tape"
    result = run(pytester, "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["recorded *test_weather.tape (1 stream)"])
    recorded = file.read_bytes()
    for _ in range(2):
        run(pytester, "--tape-upstream", upstream.url).assert_outcomes(passed=1)
        run(pytester).assert_outcomes(passed=1)
    assert (upstream.asked, file.read_bytes()) == (1, recorded)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


SETTINGS = "[pytest]\ntape = {}\ntape_upstream = {}\n"


@pytest.mark.parametrize(("setting", "options"), [("once", ()), ("rewrite", ()), ("replay", ("--tape=once",))])
def test_ci_records_only_on_the_command_line(
    pytester: pytest.Pytester, upstream: Upstream, setting: str, options: Sequence[str]
) -> None:
    folder = project(pytester, TWO_LINES)
    (folder / "pytest.ini").write_text(SETTINGS.format(setting, upstream.url))
    result = run(pytester, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["there is no tape *"])
    assert not upstream.asked
    assert not (folder / "tapes").exists()
    run(pytester, "--tape=rewrite").assert_outcomes(passed=1)
    run(pytester, *options).assert_outcomes(passed=1)


ENDING_BADLY = """
@pytest.fixture
def something(tape):
    yield
    assert "WRONG" != "WRONG"

@pytest.mark.usefixtures("something")
@pytest.mark.tape"""


@pytest.mark.parametrize(("way", "outcomes"), [
    (("@pytest.mark.tape", ENDING_BADLY), {"passed": 1, "errors": 1}),
    (("@pytest.mark.tape", "@pytest.mark.xfail(strict=True)\n@pytest.mark.tape"), {"failed": 1}),
])  # fmt: skip
def test_recording_is_kept_only_if_test_and_teardown_pass(
    pytester: pytest.Pytester, upstream: Upstream, way: tuple[str, str], outcomes: dict[str, int]
) -> None:
    old = conversation(text("hi", "sunny", " day"))
    file = project(pytester, TWO_LINES.replace(*way), test_weather=old) / "tapes/test_it/test_weather.tape"
    upstream.says = text("hi", "sunny", " night")
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(**outcomes)
    result.stdout.no_fnmatch_line("recorded *")
    assert file.read_bytes() == old
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


SHARING = """
@pytest.mark.tape("shared.tape", partly=True)
def test_a(tape):
    ask(tape.url, "a")

@pytest.mark.tape("shared.tape", partly=True)
@pytest.mark.parametrize("question", ["b", "c"])
def test_b(tape, question):
    ask(tape.url, question)
"""


FOLLOWING = """
import contextlib

@pytest.mark.tape
def test_own(tape):
    ask(tape.url, "a")

@pytest.mark.tape("test_it/test_own.tape", fault="cut@text")
def test_cut(tape):
    with pytest.raises(Exception):
        ask(tape.url, "a")

@pytest.mark.tape("test_it/test_own.tape", prefixes="frames", partly=True)
def test_prefixes(tape):
    with contextlib.suppress(Exception):
        ask(tape.url, "a")
"""


def test_tests_that_name_another_tests_tape_replay_it(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(pytester, FOLLOWING)
    monkeypatch.delenv("CI")
    for more in ((), ("--tape=rewrite",), ("--tape=replay",)):
        outcomes = run(pytester, *more, "--tape-upstream", upstream.url).parseoutcomes()
        assert outcomes.keys() == {"passed"}, (more, outcomes)
    assert [file.name for file in folder.rglob("*.tape")] == ["test_own.tape"]


def test_shared_tape_is_recorded_by_one_test_alone(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(pytester, SHARING)
    file = folder / "tapes/shared.tape"
    old = conversation(text("a", "1"), text("b", "2"), text("c", "3"))
    to_upstream = ("--tape-upstream", upstream.url)
    monkeypatch.delenv("CI")
    run(pytester, *to_upstream).assert_outcomes(failed=3)
    write(file, old)
    run(pytester, *to_upstream).assert_outcomes(passed=3)
    result = run(pytester, "--tape=rewrite", *to_upstream)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        ["*shared.tape is the tape of test_it.py::test_b?b? too, so neither can record it: run one of them alone, *"]
    )
    assert file.read_bytes() == old
    assert not upstream.asked
    result = run(pytester, "--tape=rewrite", *to_upstream, "-k", "test_a")
    result.assert_outcomes(passed=1, deselected=2)
    assert len(load(file).streams) == 1


CAPITALS = """
@pytest.mark.parametrize("question", ["a", "A"])
def test_each(tape, question):
    ask(tape.url, question)

def test_two(tape):
    ask(tape.url)

def test_Two(tape):
    ask(tape.url)
"""


def test_names_that_differ_in_case_get_different_files(pytester: pytest.Pytester, upstream: Upstream) -> None:
    folder = project(pytester, CAPITALS) / "tapes/test_it"
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*test_two.tape is the tape of test_it.py::test_Two too: name a file *"])
    plain, hashed = sorted(file.name for file in folder.iterdir())
    assert plain < hashed
    assert (len({plain.lower(), hashed.lower()}), "test_each-a.tape" in (plain, hashed)) == (2, True)


TWO_THREADS = """
def test_weather(tape):
    for question in QUESTIONS:
        ask(tape.url, question)
"""


def test_verify_pairs_streams_by_request(pytester: pytest.Pytester, upstream: Upstream) -> None:
    streams = [text("a", "sunny", " day"), calls("b", "f", '{"x":1}')]
    project(pytester, TWO_THREADS.replace("QUESTIONS", '["b", "a"]'), test_weather=conversation(*streams))
    upstream.each = {b'"a"': streams[0], b'"b"': streams[1]}
    run(pytester, "--tape=verify", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    upstream.each = {b'"b"': streams[0], b'"a"': streams[1]}
    run(pytester, "--tape=verify", "--tape-upstream", upstream.url).assert_outcomes(failed=1)


TEN_THREADS = """
import threading
def test_weather(tape):
    barrier, said = threading.Barrier(10), []
    def ask_at_once(number):
        barrier.wait()
        said.append(ask(tape.url, f"hi {number}").text)
    threads = [threading.Thread(target=ask_at_once, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 10 and all("sunny" in one for one in said)
"""


@pytest.mark.parametrize("mode", ["rewrite", "replay"])
def test_threads_that_ask_for_the_url_at_once_get_one_server(
    pytester: pytest.Pytester, upstream: Upstream, mode: str
) -> None:
    sealed = conversation(*(text(f"hi {number}", "sunny") for number in range(10)))
    file = project(pytester, TEN_THREADS, test_weather=sealed) / "tapes/test_it/test_weather.tape"
    run(pytester, f"--tape={mode}", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    assert len(load(file).streams) == 10


def test_transport_ignores_the_host(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = """
async def test_weather(tape):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(transport=tape.transport, base_url="https://api.example.com/v1") as client:
        answer = await client.post("/chat/completions", json=body)
    assert answer.status_code == 200 and "sunny" in answer.text
"""
    project(pytester, source)
    run(pytester, "-o", "trio_mode=true", "--tape=rewrite", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    run(pytester, "-o", "trio_mode=true").assert_outcomes(passed=1)


def test_recording_needs_an_upstream(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    project(pytester, TWO_LINES)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["there is no tape *, and no --tape-upstream is given"])


def test_rewrite_replaces_the_tape_and_reports_changes(pytester: pytest.Pytester, upstream: Upstream) -> None:
    old = conversation(text("hi", "sunny", " day"))
    file = project(pytester, TWO_LINES, test_weather=old) / "tapes/test_it/test_weather.tape"
    upstream.says = text("hi", "rain")
    run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url).assert_outcomes(failed=1)
    assert file.read_bytes() == old, "the test failed"
    upstream.says = text("hi", "sunny", " night")
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["recorded *test_weather.tape (1 stream):", "*sunny day*sunny night*"])
    assert b" night" in file.read_bytes()
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.stdout.fnmatch_lines(["recorded *test_weather.tape (1 stream), same content as before"])


def test_verify_compares_shapes(pytester: pytest.Pytester, upstream: Upstream) -> None:
    old = conversation(text("hi", "sunny", " day"))
    file = project(pytester, TWO_LINES, test_weather=old) / "tapes/test_it/test_weather.tape"
    upstream.says = text("hi", "very sunny")
    run(pytester, "--tape=verify", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    upstream.says = upstream.says._replace(
        reads=[(t, data.replace(b'"finish_reason"', b'"reason"')) for t, data in upstream.says.reads]
    )
    result = run(pytester, "--tape=verify", "--tape-upstream", upstream.url)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["the upstream has drifted from *test_weather.tape:", "*breaking: stream 1*"])
    assert file.read_bytes() == old


LEAVES_EARLY = """
@pytest.mark.tape
def test_it(tape):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with httpx.stream("POST", tape.url + "/chat/completions", json=body) as answer:
        assert next(answer.iter_bytes())
"""


def test_stream_that_outlives_its_test_is_ended_and_noted(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Thread, "settle_s", 0.1)
    upstream.fault = Fault.STALL
    file = project(pytester, LEAVES_EARLY) / "tapes/test_it/test_it.tape"
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["test_it.py::test_it: stream 1 still ran 0.1 s after the test and is recorded up to *"]
    )
    assert ending_of(load(file).streams[0]) == "shutdown"
    run(pytester).assert_outcomes(passed=1)


def test_off_asks_the_upstream_and_keeps_nothing(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = TWO_LINES + "    assert tape.sent[0].json['model'] == 'm' and tape.fold.text == 'sunny day'\n"
    folder = project(pytester, source)
    run(pytester, "--tape=off", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    assert not (folder / "tapes").exists()


def test_recording_without_requests_fails(pytester: pytest.Pytester, upstream: Upstream) -> None:
    project(pytester, "def test_it(tape):\n    assert tape.url\n")
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["no request reached the upstream, so nothing was recorded"])


def test_secret_in_a_prompt_is_redacted_and_does_not_affect_matching(
    pytester: pytest.Pytester, upstream: Upstream
) -> None:
    source = """
import os
@pytest.mark.tape
def test_it(tape):
    ask(tape.url, "my key is " + os.environ["THE_KEY"])
    assert os.environ["THE_KEY"] in tape.sent[0].json["messages"][0]["content"]
"""
    first, second = (f"sk-proj-{letter * 4}CanaryOfATest0123456789abcdefABCDEF" for letter in "ab")
    file = project(pytester, source) / "tapes/test_it/test_it.tape"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THE_KEY", first)
        run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
        assert b"Canary" not in file.read_bytes()
        run(pytester).assert_outcomes(passed=1)
        patch.setenv("THE_KEY", second)
        run(pytester).assert_outcomes(passed=1)


BEFORE_SEAL = """
import re

def pytest_wiretape_before_seal(text):
    return re.findall(r"ACME-\\d+", text)
"""


def test_before_seal_hook_names_more_secrets(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = TWO_LINES.replace("ask(base_url := tape.url)", 'ask(tape.url, "I am ACME-12345")')
    file = project(pytester, source) / "tapes/test_it/test_weather.tape"
    pytester.makeconftest(BEFORE_SEAL)
    run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url).assert_outcomes(passed=1)
    assert b"I am " in file.read_bytes()
    assert b"ACME-12345" not in file.read_bytes()
    run(pytester).assert_outcomes(passed=1)


# -- teardowns -------------------------------------------------------------------------------------------------------

THING = """
@pytest.fixture
def thing(tape):
    ask(tape.url, "make it")
    yield tape
    assert ask(tape.url, "do away with it").status_code == 200

@pytest.mark.tape
def test_it(thing):
    assert "sunny" in ask(thing.url, "use it").text
"""
ASKED_LAST = 'assert ask(tape.url, "do away with it").status_code == 200'
ALL_OF_IT = conversation(*(text(words, "sunny") for words in ("make it", "use it", "do away with it")))
MORE_FIXTURES = """
@pytest.fixture
def client(tape, request):
    request.addfinalizer(lambda: ask(tape.url, "do away with it"))

@pytest.fixture
def session(client):
    return None

@pytest.mark.tape
def test_finalizer(tape, session):
    ask(tape.url, "make it"), ask(tape.url, "use it")
"""


@pytest.mark.parametrize("mode", ["once", "verify", "replay"])
def test_requests_in_a_teardown_belong_to_the_test(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.delenv("CI")
    names = ("test_it", "test_finalizer")
    tapes = {} if mode == "once" else dict.fromkeys(names, ALL_OF_IT)
    folder = project(pytester, THING + MORE_FIXTURES, **tapes) / "tapes/test_it"
    result = run(pytester, f"--tape={mode}", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=2)
    assert upstream.asked == (0 if mode == "replay" else 6)
    if mode == "once":
        assert [len(load(folder / f"{name}.tape").streams) for name in names] == [3, 3]
        run(pytester, "--tape=replay").assert_outcomes(passed=2)


def test_unused_stream_fails_the_teardown_that_might_use_it(pytester: pytest.Pytester) -> None:
    project(pytester, THING.replace(ASKED_LAST, "print()"), test_it=ALL_OF_IT)
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_it*", "1 of 3 recorded streams were not asked for"])


MISSING = THING.replace(ASKED_LAST, 'ask(tape.url, "something else")')


def test_request_without_a_recording_fails_the_teardown(pytester: pytest.Pytester) -> None:
    project(pytester, MISSING.replace("mark.tape", "mark.tape(partly=True)"), test_it=ALL_OF_IT)
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["a request is not on the tape", '  messages*: "do away with it" -> "something else"'])


@pytest.mark.parametrize(
    ("way", "outcomes", "first"),
    [
        (("something else", 'else")\n    raise OSError("mine'), {"passed": 1, "errors": 1}, "E * OSError: mine"),
        (('"sunny" in', '"rain" in'), {"failed": 1}, "E * assert 'rain' in *"),
        (('    assert "sunny" in ', '    pytest.skip("no weather")\n    '), {"skipped": 1}, "*1 skipped*"),
    ],
)
def test_own_failure_comes_first(
    pytester: pytest.Pytester, way: tuple[str, str], outcomes: dict[str, int], first: str
) -> None:
    project(pytester, MISSING.replace(*way), test_it=ALL_OF_IT)
    result = run(pytester)
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([first])
    result.stdout.no_fnmatch_line("a request is not on the tape")


def test_expected_failure_may_happen_in_the_teardown(pytester: pytest.Pytester) -> None:
    project(pytester, MISSING.replace("@pytest.mark.tape", "@pytest.mark.xfail\n@pytest.mark.tape"), test_it=ALL_OF_IT)
    result = run(pytester)
    result.assert_outcomes(xpassed=1, xfailed=1)
    assert result.ret == 0


def test_unused_stream_fails_the_test_without_such_a_teardown(pytester: pytest.Pytester) -> None:
    source = THING.replace("yield tape", "return tape")
    project(pytester, source, test_it=ALL_OF_IT)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 of 3 recorded streams were not asked for"])


ASYNC = """
import pytest_trio

@pytest.fixture
async def thing(tape):
    async with httpx.AsyncClient(transport=tape.transport, base_url="https://api.example.com/v1") as client:
        async def ask(question):
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
            return await client.post("/chat/completions", json=body)
        await ask("make it")
        yield ask
        await ask("do away with it")

@pytest.mark.tape
async def test_it(thing):
    await thing("use it")
"""


def test_async_fixture_is_torn_down_inside_its_test(pytester: pytest.Pytester) -> None:
    folder = project(pytester, ASYNC, test_it=ALL_OF_IT)
    run(pytester, "-o", "trio_mode=true").assert_outcomes(passed=1)
    more = conversation(*(text(words, "sunny") for words in ("make it", "use it", "do away with it", "and more")))
    write(folder / "tapes/test_it/test_it.tape", more)
    run(pytester, "-o", "trio_mode=true").assert_outcomes(failed=1)


def test_verify_includes_the_teardown(pytester: pytest.Pytester, upstream: Upstream) -> None:
    project(pytester, THING, test_it=ALL_OF_IT)
    upstream.each = {b"do away": calls("do away with it", "f", "{}")}
    result = run(pytester, "--tape=verify", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["the upstream has drifted from *", "  breaking: stream 3*"])


def test_xdist_reports_problems_of_a_teardown(pytester: pytest.Pytester) -> None:
    project(pytester, MISSING, test_it=ALL_OF_IT)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["a request is not on the tape"])


# -- prefixes, faults, pieces -----------------------------------------------------------------------------------------

AGENT = """
def run_calls(url):
    parts, line, done = {}, "", False
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "write"}]}
    try:
        with httpx.stream("POST", url + "/chat/completions", json=body, verify=False) as response:
            for following in response.iter_lines():
                if not following and line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        for call in choice["delta"].get("tool_calls", ()):
                            parts[call["index"]] = parts.get(call["index"], "") + call["function"]["arguments"]
                        done = done or choice["finish_reason"] == "tool_calls"
                line = following
    except httpx.TransportError:
        pass
    return [json.loads(part) for part in parts.values()] if done else []
"""
CALL = calls("write", "write_file", '{"path":', '"a.md",', '"text":"é"}')


def test_every_prefix_is_a_run_of_the_test(pytester: pytest.Pytester) -> None:
    source = (
        AGENT
        + """
@pytest.mark.tape(prefixes="frames", end="eof")
def test_no_call_of_half_its_arguments(tape):
    ran = run_calls(tape.url)
    assert len(ran) == sum(call.whole for call in tape.fold.calls)
    if tape.prefix is None:
        assert ran == [{"path": "a.md", "text": "é"}] and tape.fold.ending == "completed"
    else:
        assert tape.fold.ending != "completed" or tape.prefix.frames >= 5
"""
    )
    project(pytester, source, test_no_call_of_half_its_arguments=conversation(CALL))
    result = run(pytester, "-v")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["*test_no_call_of_half_its_arguments?stream1-byte0? PASSED*", "*?whole? PASSED*"])


def test_prefixes_find_an_agent_that_runs_half_a_call(pytester: pytest.Pytester) -> None:
    source = (
        AGENT.replace("if done else []", "if parts else []")
        + """
@pytest.mark.tape(prefixes="frames", end="eof")
def test_no_call_of_half_its_arguments(tape):
    run_calls(tape.url)
"""
    )
    project(pytester, source, test_no_call_of_half_its_arguments=conversation(CALL))
    run(pytester).assert_outcomes(passed=5, failed=3)


def test_loose_matches_are_listed_at_the_end(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.tape
def test_it(tape):
    body = {"model": "m", "stream": True, "messages": [
        {"role": "system", "content": "It is 10:31."}, {"role": "user", "content": "hi"}]}
    answer = httpx.post(tape.url + "/chat/completions", json=body)
    assert "sunny" in answer.text and answer.headers["x-wiretape-match"] == "loose"
"""
    asked = {"model": "m", "stream": True, "messages": [
        {"role": "system", "content": "It is 09:00."}, {"role": "user", "content": "hi"}]}  # fmt: skip
    turn = text("hi", "sunny")._replace(body=asked)
    project(pytester, source, test_it=conversation(turn))
    result = run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ['*test_it: request 1 is stream 1, matched loosely: messages?0?.content: "It is 09:00." -> "It is 10:31."']
    )


TWO = """
@pytest.mark.tape("two.tape", partly=True, prefixes="frames")
def test_runs(tape):
    with contextlib.suppress(httpx.TransportError):
        ask(tape.url, "hi")

@pytest.mark.tape("two.tape", partly=True)
def test_turns(tape):
    for prefix in tape.prefixes("frames"):
        with contextlib.suppress(httpx.TransportError):
            ask(tape.url, "hi")
"""


def test_prefix_of_a_stream_that_is_never_requested_fails(pytester: pytest.Pytester) -> None:
    project(pytester, "import contextlib\n" + TWO)
    write(pytester.path / "tapes/two.tape", conversation(text("hi", "a"), text("ho", "b")))
    result = run(pytester)
    result.assert_outcomes(passed=5, failed=5)  # the second stream: three frames, its start, and the loop
    result.stdout.fnmatch_lines(
        ["*stream2-byte0 cuts stream 2, which was not asked for, so this run tested nothing"] * 2
    )


def test_fault_is_applied_once_when_another_follows(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.tape(partly=True)
def test_it(tape):
    tape.fault("cut@text#1")
    with pytest.raises(httpx.RemoteProtocolError):
        ask(tape.url)
    tape.fault("slow=0.001#1")
    with pytest.raises(httpx.RemoteProtocolError):
        ask(tape.url)
"""
    project(pytester, source, test_it=conversation(text("hi", "sunny"), text("ho", "b")))
    run(pytester).assert_outcomes(passed=1)


FAULTY = """
import functools
WAYS = [
    lambda tape: tape.fault("cut@text"),
    lambda tape: tape.fault(cut_after="text"),
    lambda tape: tape.fault(cut_after=1),
    lambda tape: (tape.rechunk(3), tape.fault(cut_at="frame:1")),
]

def check(tape):
    with pytest.raises(httpx.RemoteProtocolError):
        ask(tape.url)
    assert tape.fold.ending == "truncated" and tape.fold.text == "sunny"

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.tape("one.tape")
def test_call(tape, way):
    way(tape)
    check(tape)

@pytest.mark.tape("one.tape", fault="cut@text")
def test_marker(tape):
    check(tape)

@pytest.mark.tape("one.tape", fault=["rechunk=1", "cut@text"])
def test_marker_with_two(tape):
    check(tape)

@pytest.mark.tape("one.tape")
def test_unknown(tape):
    tape.fault("foo@bar")
"""


def test_faults_come_from_marker_or_call(pytester: pytest.Pytester) -> None:
    write(project(pytester, FAULTY) / "tapes/one.tape", conversation(text("hi", "sunny", " day")))
    result = run(pytester)
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(["tape.fault: fault 'foo@bar': *"])


def test_fault_without_a_place_fails_the_test(pytester: pytest.Pytester) -> None:
    source = LEFT.replace("MARKED", "fault='cut@tool:write_file'")
    project(pytester, source, test_weather=conversation(text("hi", "sunny")))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["no response had a place for cut@tool:write_file"])


def test_attempts_fail_in_order(pytester: pytest.Pytester) -> None:
    source = """
def test_it(tape):
    tape.fault(attempts=[503, "reset", "ok"])
    assert ask(tape.url).status_code == 503
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        ask(tape.url)
    assert ask(tape.url).status_code == 200
    assert [told.fold.ending for told in tape.answers] == ["upstream_error", "reset", "completed"]
"""
    project(pytester, source, test_it=ONE)
    run(pytester).assert_outcomes(passed=1)


# -- clients of every kind --------------------------------------------------------------------------------------------


def test_recorded_times_are_exact_under_autojump_clock(pytester: pytest.Pytester) -> None:
    source = """
import trio
@pytest.mark.tape(speed="original")
async def test_it(tape, autojump_clock):
    began = trio.current_time()
    async with httpx.AsyncClient(transport=tape.transport, base_url=tape.url, timeout=None) as client:
        await client.post("/chat/completions", json={"model": "m", "stream": True,
                          "messages": [{"role": "user", "content": "hi"}]})
    assert round(trio.current_time() - began, 3) == 600.001
"""
    project(pytester, source, test_it=conversation(text("hi", "sunny", " day", gap_s=150)))
    run(pytester, "-o", "trio_mode=true").assert_outcomes(passed=1)


def test_asyncio_threads_and_child_processes_use_the_url(pytester: pytest.Pytester) -> None:
    source = """
import asyncio, os, subprocess, sys, threading
@pytest.mark.tape("one.tape", repeat=True)
def test_it(tape):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}

    async def ask_later():
        async with httpx.AsyncClient() as client:
            return await client.post(tape.url + "/chat/completions", json=body)

    said = [asyncio.run(ask_later()).text]
    thread = threading.Thread(target=lambda: said.append(ask(tape.url).text))
    thread.start()
    thread.join()
    curl = ["curl", "-sS", tape.url + "/chat/completions", "-d", json.dumps(body)]
    said.append(subprocess.run(curl, capture_output=True, text=True, check=True).stdout)
    assert len(set(said)) == 1 and len(tape.sent) == 3
"""
    write(project(pytester, source) / "tapes/one.tape", ONE)
    run(pytester).assert_outcomes(passed=1)


def test_fresh_ids_differ_between_responses(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.tape("one.tape", ids="fresh", repeat=True)
def test_it(tape):
    ids = {json.loads(line[6:])["id"] for _ in "12" for line in ask(tape.url).text.splitlines() if "{" in line}
    assert len(ids) == 2
"""
    write(project(pytester, source) / "tapes/one.tape", ONE)
    run(pytester).assert_outcomes(passed=1)


# -- the run as a whole -----------------------------------------------------------------------------------------------


def test_options_override_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntape = replay\ntape_speed = original\ntape_max_age = 10\n")
    project(pytester, TWO_LINES, test_weather=ONE)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_weather.tape was recorded * days ago, and 10 are allowed"])
    run(pytester, "--tape-max-age", "100000").assert_outcomes(passed=1)
    assert run(pytester, "-o", "tape=never").ret == pytest.ExitCode.USAGE_ERROR


WRONG = {
    "prefix='frames'": "the tape marker knows no prefix; it knows end, fault, ids, *",
    "match='zz'": "the tape marker's match is key or position or strict, not 'zz'",
    "ids='zz'": "the tape marker's ids is recorded or fresh, not 'zz'",
    "prefixes='zz'": "the tape marker's prefixes is frames or bytes, not 'zz'",
    "prefixes='frames', end='zz'": "the tape marker's end is cut or eof or reset or stall or garbage, not 'zz'",
    "speed='inf'": "the tape marker's speed is instant, original or a factor such as 10, not 'inf'",
    "speed=-1": "the tape marker's speed is instant, original or a factor such as 10, not -1",
    "max_gap_ms='x'": "the tape marker's max_gap_ms is a number of milliseconds, not 'x'",
    "fault='zz'": "the tape marker: fault 'zz': *",
    "rechunk='x'": "the tape marker: fault 'rechunk=x': *",
}


def test_wrong_marker_is_one_line_in_one_test(pytester: pytest.Pytester) -> None:
    tests = [f"@pytest.mark.tape({marked})\ndef test_{at}(tape): ask(tape.url)\n" for at, marked in enumerate(WRONG)]
    project(pytester, "\n".join(tests))
    result = run(pytester)
    result.assert_outcomes(failed=len(WRONG))
    result.stdout.fnmatch_lines(list(WRONG.values()))
    assert "Traceback" not in str(result.stdout)


def test_none_means_no_value_in_the_marker(pytester: pytest.Pytester) -> None:
    marked = "max_gap_ms=None, fault=None, rechunk=None, prefixes=None"
    project(pytester, LEFT.replace("MARKED", marked), test_weather=ONE)
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("tape_speed=zz", "the setting tape_speed is instant, original or a factor such as 10, not 'zz'"),
        ("tape_max_age=q", "the setting tape_max_age is a number of days, not 'q'"),
    ],
)
def test_wrong_setting_is_one_line(pytester: pytest.Pytester, setting: str, line: str) -> None:
    project(pytester, TWO_LINES, test_weather=ONE)
    result = run(pytester, "-o", setting)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [each for each in result.errlines if each] == [f"ERROR: {line}"]


def test_unwritable_folder_is_one_line(pytester: pytest.Pytester, upstream: Upstream) -> None:
    folder = project(pytester, TWO_LINES)
    (folder / "tapes").write_text("a file where the folder should be")
    result = run(pytester, "--tape=rewrite", "--tape-upstream", upstream.url)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*test_weather.tape cannot be written: *"])
    assert "Traceback" not in str(result.stdout)


def test_damaged_tape_fails_its_test(pytester: pytest.Pytester) -> None:
    project(pytester, TWO_LINES, test_weather=b"not a tape")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tapes/test_it/test_weather.tape: *"])


MANY = """
@pytest.mark.parametrize("number", range(12))
@pytest.mark.tape("one.tape")
def test_each(tape, number):
    assert "sunny" in ask(tape.url).text
"""


@pytest.mark.slow
def test_xdist_workers_each_have_a_server(pytester: pytest.Pytester) -> None:
    folder = project(pytester, MANY) / "tapes"
    write(folder / "one.tape", ONE)
    write(folder / "test_it" / "gone.tape", ONE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--tape-check-unused")
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["belongs to no test: *gone.tape"])
    assert result.stdout.str().count("belongs to no test") == 1, "what any worker used is used"
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("place", "options", "due"),
    [
        ("test_it/gone.tape", (), True),
        ("loose.tape", ("-k", "weather"), True),
        ("test_it/gone.tape", ("test_it.py::test_weather",), False),
    ],
)
def test_check_unused_fails_the_run(pytester: pytest.Pytester, place: str, options: Sequence[str], due: bool) -> None:
    folder = project(pytester, TWO_LINES, test_weather=ONE)
    pytester.makepyfile(test_other="def test_nothing():\n    pass\n")
    write(folder / "tapes" / place, ONE)
    result = run(pytester, "--tape-check-unused", *options)
    assert (f"belongs to no test: {folder / 'tapes' / place}" in result.outlines) is due
    assert (result.ret == pytest.ExitCode.TESTS_FAILED) is due


def test_run_without_tapes_imports_nothing(pytester: pytest.Pytester) -> None:
    project(
        pytester,
        """
import sys
def test_it():
    assert {name for name in sys.modules if name.startswith("wiretape.")} == {
        "wiretape.replay", "wiretape.replay.pytest_plugin", "wiretape.replay.pytest_plugin.plugin"}
""",
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
