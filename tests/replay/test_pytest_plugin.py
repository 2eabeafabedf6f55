"""The plugin as users run it: projects of a few lines, each in its own run of pytest."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.replay import made
from tests.replay.dialects import ANSWERS
from tests.support.tapes import Turn, calls, conversation, text, write
from wiretape.replay.compare.compare import ending_of
from wiretape.replay.playback.script import Fault, Request, Script, event_stream
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.sealed.files import load

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

CLIENT = """
import asyncio, contextlib, httpx, json, os, socket, subprocess, threading, pytest, trio

def body_of(question="hi", **more):
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}], **more}

def ask(url, question="hi", **more):
    return httpx.post(url + "/chat/completions", json=body_of(question, **more))
"""
SUNNY = """
@pytest.mark.tape
def test_it(tape):
    assert "sunny" in ask(base_url := tape.url).text
"""
ONE = conversation(text("hi", "sunny"))
TWO = conversation(text("hi", "sunny"), text("more", "rain"))
FILE = "test_it/test_it.tape"


@pytest.fixture(autouse=True)
def in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record nothing unless a test asks for it, wherever our own suite runs."""
    monkeypatch.setenv("CI", "1")


def run(pytester: pytest.Pytester, *options: str, **outcomes: int) -> pytest.RunResult:
    """Run pytest and compare the outcomes."""
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", "-o", "trio_mode=true", *options)
    if outcomes:
        result.assert_outcomes(**outcomes)
    return result


def project(pytester: pytest.Pytester, source: str, tapes: Mapping[str, bytes] | bytes = b"") -> Path:
    """Write one module with the client, and its tapes; return their folder."""
    module = pytester.makepyfile(test_it=CLIENT + source)
    folder = module.parent / "tapes"
    named = {FILE: tapes} if isinstance(tapes, bytes) else tapes
    for name, sealed in named.items():
        if sealed:
            write(folder / name, sealed)
    return folder


class Case(NamedTuple):
    """A module, its tapes (bytes: that of `test_it`), and the result of its run."""

    source: str
    tapes: Mapping[str, bytes] | bytes
    outcomes: Mapping[str, int]
    lines: Sequence[str] = ()


PASSED = {"passed": 1}
FAILED = {"failed": 1}

REPLAYED = {
    "tape is named like the test": Case(SUNNY, ONE, PASSED),
    "missing tape fails and names the command": Case(
        SUNNY,
        b"",
        FAILED,
        [
            f"there is no tape *tapes/{FILE}",
            "to record it: pytest test_it.py::test_it --tape=rewrite --tape-upstream https://api.example.com/v1",
        ],
    ),
    "damaged tape fails its test": Case(SUNNY, b"not a tape", FAILED, [f"*tapes/{FILE}: *"]),
    "request without a recording fails the test": Case(
        """
@pytest.mark.tape
def test_it(tape):
    ask(tape.url)
    assert ask(tape.url, "something else").status_code == 599
""",
        ONE,
        FAILED,
        [
            "a request is not on the tape",
            "*test_it.tape (--tape=replay)",
            "1. POST /v1/chat/completions (* 1 messages) -> stream 1, completed",
            "2. POST /v1/chat/completions (* 1 messages) -> no recorded response",
            '*messages*.content: "hi" -> "something else"',
            "to record it: pytest test_it.py::test_it --tape=rewrite *",
        ],
    ),
    "unused stream fails the test": Case(
        SUNNY,
        TWO,
        FAILED,
        ["1 of 2 recorded streams were not asked for", "not asked for: stream 2: POST /v1/chat/completions *"],
    ),
    "unused stream is allowed with partly": Case(SUNNY.replace("mark.tape", "mark.tape(partly=True)"), TWO, PASSED),
    "marker names one or several tapes": Case(
        """
@pytest.mark.tape("one.tape", "more/two.tape")
def test_both(tape):
    assert "sunny" in ask(tape.url).text and "rain" in ask(tape.url, "more").text

@pytest.mark.tape("one.tape")
class TestOne:
    def test_it(self, tape):
        assert "sunny" in ask(tape.url).text
""",
        {"one.tape": ONE, "more/two.tape": conversation(text("more", "rain"))},
        {"passed": 2},
    ),
    "every set of parameters has its own file": Case(
        """
@pytest.mark.parametrize("question", ["hi", "how / are you"])
def test_each(tape, question):
    ask(tape.url, question)

class TestThese:
    @pytest.mark.tape(partly=True)
    def test_it(self, tape):
        ask(tape.url)
""",
        {"test_it/test_each-hi.tape": ONE, "test_it/TestThese.test_it.tape": ONE},
        {"passed": 2, "failed": 1},
        ["there is no tape *tapes/test_it/test_each-how-are-you-????????.tape"],
    ),
    "fixture shows requests and results": Case(
        """
def test_it(tape):
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
""",
        conversation(text("hi", "sunny", " day", gap_s=0.25)).replace(
            b'"stream":true', b'"temperature":0,"stream":true'
        ),
        PASSED,
    ),
    "loose match is listed at the end": Case(
        """
@pytest.mark.tape
def test_it(tape):
    system = {"role": "system", "content": "It is 10:31."}
    answer = ask(tape.url, messages=[system, {"role": "user", "content": "hi"}])
    assert "sunny" in answer.text and answer.headers["x-wiretape-match"] == "loose"
""",
        conversation(
            text("hi", "sunny")._replace(
                body={
                    "model": "m",
                    "stream": True,
                    "messages": [{"role": "system", "content": "It is 09:00."}, {"role": "user", "content": "hi"}],
                }
            )
        ),
        PASSED,
        ['*test_it: request 1 is stream 1, matched loosely: messages?0?.content: "It is 09:00." -> "It is 10:31."'],
    ),
    "faults come from marker or call": Case(
        """
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
""",
        {"one.tape": conversation(text("hi", "sunny", " day"))},
        {"passed": 6, "failed": 1},
        ["tape.fault: fault 'foo@bar': *"],
    ),
    "fault without a place fails the test": Case(
        SUNNY.replace("mark.tape", "mark.tape(fault='cut@tool:write_file')"),
        ONE,
        FAILED,
        ["no response had a place for cut@tool:write_file"],
    ),
    "fault of a test that asks nothing": Case(
        """
@pytest.mark.tape(fault="cut@text", partly=True)
def test_it(tape):
    pass
""",
        ONE,
        FAILED,
        ["no request came to test cut@text"],
    ),
    "marker with a wrong file fails its own tests only": Case(
        """
@pytest.mark.tape("one.tape", 5)
@pytest.mark.parametrize("number", [1, 2])
def test_wrong(tape, number):
    ask(tape.url)

@pytest.mark.tape("one.tape", 5, prefixes="frames")
def test_wrong_too(tape):
    ask(tape.url)

@pytest.mark.tape
def test_missing(tape):
    ask(tape.url)

@pytest.mark.tape("one.tape")
def test_right(tape):
    assert "sunny" in ask(tape.url).text
""",
        {"one.tape": ONE},
        {"passed": 1, "failed": 4},
        ["a file of the tape marker is named by a text or a path, not by 5", "there is no tape *test_missing.tape"],
    ),
    "fault without a place is reported next to another failure": Case(
        SUNNY.replace("mark.tape", "mark.tape(fault='cut@tool:write_file')").replace("sunny", "rain"),
        ONE,
        FAILED,
        ["E * assert 'rain' in *", "no response had a place for cut@tool:write_file"],
    ),
    "marker without the fixture fails the test": Case(
        """
@pytest.mark.tape("one.tape")
def test_without():
    pass

@pytest.mark.tape("one.tape")
@pytest.mark.usefixtures("tape")
def test_named():
    pass

@pytest.mark.tape("one.tape")
def test_later(request):
    assert "sunny" in ask(request.getfixturevalue("tape").url).text

@pytest.mark.tape("one.tape")
def test_missing_later(request):
    ask(request.getfixturevalue("tape").url, "something else")

@pytest.mark.tape("absent.tape")
def test_absent_later(request):
    request.getfixturevalue("tape")

@pytest.mark.tape("one.tape")
class TestSome:
    def test_it(self, tape):
        assert "sunny" in ask(tape.url).text

    def test_other(self):
        pass
""",
        {"one.tape": ONE},
        {"passed": 3, "failed": 4},
        [
            "the tape marker is on a test that does not use the `tape` fixture: add `tape` to its arguments*",
            "1 of 1 recorded streams were not asked for",
            "a request is not on the tape",
            "there is no tape *absent.tape",
        ],
    ),
    "streams of every dialect": Case(
        """
@pytest.mark.tape(fault="cut@tool:write_file+4#2")
def test_it(tape):
    asked = [{"role": "user", "content": "hi"}]
    for path, name in (("/chat/completions", "messages"), ("/responses", "input"), ("/messages", "messages")):
        with contextlib.suppress(httpx.RemoteProtocolError):
            httpx.post(tape.url + path, json={"model": "m", "stream": True, name: asked})
    folds = [answer.fold for answer in tape.answers]
    assert {fold.text for fold in folds} == {"Grüße aus Zürich"}
    assert [fold.ending for fold in folds] == ["completed", "truncated", "completed"]
    assert [[call.whole for call in fold.calls] for fold in folds] == [[True, True], [False, False], [True, True]]
""",
        made.sealed(*(made.stream(dialect=dialect) for dialect in ANSWERS)),
        PASSED,
    ),
    "attempts fail in order": Case(
        """
def test_it(tape):
    tape.fault(attempts=[503, "reset", "ok"])
    assert ask(tape.url).status_code == 503
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        ask(tape.url)
    assert ask(tape.url).status_code == 200
    assert [answer.fold.ending for answer in tape.answers] == ["upstream_error", "reset", "completed"]
""",
        ONE,
        PASSED,
    ),
    "recorded times are exact under the autojump clock": Case(
        """
@pytest.mark.tape(speed="original")
async def test_it(tape, autojump_clock):
    began = trio.current_time()
    async with httpx.AsyncClient(transport=tape.transport, base_url=tape.url, timeout=None) as client:
        await client.post("/chat/completions", json=body_of())
    assert round(trio.current_time() - began, 3) == 600.001
""",
        conversation(text("hi", "sunny", " day", gap_s=150)),
        PASSED,
    ),
    "asyncio, threads and child processes use the url": Case(
        """
@pytest.mark.tape(repeat=True)
def test_it(tape):
    async def ask_later():
        async with httpx.AsyncClient() as client:
            return await client.post(tape.url + "/chat/completions", json=body_of())

    answers = [asyncio.run(ask_later()).text]
    thread = threading.Thread(target=lambda: answers.append(ask(tape.url).text))
    thread.start()
    thread.join()
    curl = ["curl", "-sS", tape.url + "/chat/completions", "-d", json.dumps(body_of())]
    answers.append(subprocess.run(curl, capture_output=True, text=True, check=True).stdout)
    assert len(set(answers)) == 1 and len(tape.sent) == 3
""",
        ONE,
        PASSED,
    ),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_replay(pytester: pytest.Pytester, name: str) -> None:
    source, tapes, outcomes, lines = REPLAYED[name]
    project(pytester, source, tapes)
    run(pytester, **outcomes).stdout.fnmatch_lines(lines)


@pytest.mark.parametrize("fault", ["cut@text", "attempts=reset"])
def test_report_does_not_call_a_stream_unused_that_a_fault_broke(pytester: pytest.Pytester, fault: str) -> None:
    source = f"""
@pytest.mark.tape(fault={fault!r})
def test_it(tape):
    with pytest.raises(httpx.TransportError):
        ask(tape.url)
    assert False
"""
    project(pytester, source, TWO)
    stdout = run(pytester, failed=1).stdout
    stdout.fnmatch_lines(["1. POST * -> stream 1, *", "not asked for: stream 2: POST *"])
    stdout.no_fnmatch_line("not asked for: stream 1*")


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
        self.option = f"--tape-upstream={self.thread.serve('up', self._choose)}/v1"

    def _choose(self, request: Request) -> Script:
        self.asked += 1
        says = next((says for words, says in self.each.items() if words in request.body), self.says)
        reads = [data for _, data in says.reads]
        return event_stream(reads[:1], end=self.fault) if self.fault is not None else event_stream(reads)

    def run(self, pytester: pytest.Pytester, mode: str, **outcomes: int) -> pytest.RunResult:
        """Run with `--tape=mode` and this upstream."""
        return run(pytester, f"--tape={mode}", self.option, **outcomes)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    up = Upstream()
    yield up
    up.thread.close()


def test_missing_tape_is_recorded_once(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")
    file = project(pytester, SUNNY) / FILE
    run(pytester, upstream.option, passed=1).stdout.fnmatch_lines(["recorded *test_it.tape (1 stream)"])
    recorded = file.read_bytes()
    for _ in range(2):
        run(pytester, upstream.option, passed=1)
        run(pytester, passed=1)
    assert (upstream.asked, file.read_bytes()) == (1, recorded)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(("setting", "options"), [("once", ()), ("rewrite", ()), ("replay", ("--tape=once",))])
def test_ci_records_only_on_the_command_line(
    pytester: pytest.Pytester, upstream: Upstream, setting: str, options: Sequence[str]
) -> None:
    folder = project(pytester, SUNNY)
    pytester.makeini(f"[pytest]\ntape = {setting}\ntape_upstream = {upstream.option.partition('=')[2]}\n")
    run(pytester, *options, failed=1).stdout.fnmatch_lines(["there is no tape *"])
    assert not upstream.asked
    assert not folder.exists()
    run(pytester, "--tape=rewrite", passed=1)
    run(pytester, *options, passed=1)


ENDING_BADLY = """
@pytest.fixture
def something(tape):
    yield
    assert "WRONG" != "WRONG"

@pytest.mark.usefixtures("something")
@pytest.mark.tape"""
EXPECTED = "@pytest.mark.xfail(strict=True)\n@pytest.mark.tape"


@pytest.mark.parametrize(("marked", "outcomes"), [(ENDING_BADLY, {"passed": 1, "errors": 1}), (EXPECTED, FAILED)])
def test_recording_is_kept_only_if_test_and_teardown_pass(
    pytester: pytest.Pytester, upstream: Upstream, marked: str, outcomes: dict[str, int]
) -> None:
    file = project(pytester, SUNNY.replace("@pytest.mark.tape", marked), ONE) / FILE
    upstream.says = text("hi", "sunny", " night")
    upstream.run(pytester, "rewrite", **outcomes).stdout.no_fnmatch_line("recorded *")
    assert file.read_bytes() == ONE
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_rewrite_replaces_the_tape_and_reports_changes(pytester: pytest.Pytester, upstream: Upstream) -> None:
    old = conversation(text("hi", "sunny", " day"))
    file = project(pytester, SUNNY, old) / FILE
    upstream.says = text("hi", "rain")
    upstream.run(pytester, "rewrite", failed=1)
    assert file.read_bytes() == old, "the test failed"
    upstream.says = text("hi", "sunny", " night")
    for lines in (
        ["recorded *test_it.tape (1 stream):", "*sunny day*sunny night*"],
        ["recorded *test_it.tape (1 stream), same content as before"],
    ):
        upstream.run(pytester, "rewrite", passed=1).stdout.fnmatch_lines(lines)
        assert b" night" in file.read_bytes()


def test_verify_compares_shapes(pytester: pytest.Pytester, upstream: Upstream) -> None:
    file = project(pytester, SUNNY, ONE) / FILE
    says = upstream.says = text("hi", "very sunny")
    upstream.run(pytester, "verify", passed=1)
    upstream.says = says._replace(reads=[(t, read.replace(b'"finish_reason"', b'"reason"')) for t, read in says.reads])
    upstream.run(pytester, "verify", failed=1).stdout.fnmatch_lines(
        ["the upstream has drifted from *test_it.tape:", "*breaking: stream 1*"]
    )
    assert file.read_bytes() == ONE


def test_off_asks_the_upstream_and_keeps_nothing(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = SUNNY + "    assert tape.sent[0].json['model'] == 'm' and tape.fold.text == 'sunny day'\n"
    folder = project(pytester, source)
    upstream.run(pytester, "off", passed=1)
    assert not folder.exists()


def test_recording_needs_an_upstream_and_a_request(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "false")
    project(pytester, "def test_it(tape):\n    assert tape.url\n")
    run(pytester, failed=1).stdout.fnmatch_lines(["there is no tape *, and no --tape-upstream is given"])
    upstream.run(pytester, "rewrite", failed=1).stdout.fnmatch_lines(
        ["no request reached the upstream, so nothing was recorded"]
    )


def test_stream_that_outlives_its_test_is_ended_and_noted(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
@pytest.mark.tape
def test_it(tape):
    with httpx.stream("POST", tape.url + "/chat/completions", json=body_of()) as answer:
        assert next(answer.iter_bytes())
"""
    monkeypatch.setattr(Thread, "settle_s", 0.1)
    upstream.fault = Fault.STALL
    file = project(pytester, source) / FILE
    upstream.run(pytester, "rewrite", passed=1).stdout.fnmatch_lines(
        ["test_it.py::test_it: stream 1 still ran 0.1 s after the test and is recorded up to *"]
    )
    assert ending_of(load(file).streams[0]) == "shutdown"
    run(pytester, passed=1)


def test_secret_in_a_prompt_is_redacted_and_does_not_affect_matching(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
@pytest.mark.tape
def test_it(tape):
    ask(tape.url, "my key is " + os.environ["THE_KEY"])
    assert os.environ["THE_KEY"] in tape.sent[0].json["messages"][0]["content"]
"""
    first, second = (f"sk-proj-{letter * 4}CanaryOfATest0123456789abcdefABCDEF" for letter in "ab")
    file = project(pytester, source) / FILE
    monkeypatch.setenv("THE_KEY", first)
    upstream.run(pytester, "rewrite", passed=1)
    assert b"Canary" not in file.read_bytes()
    run(pytester, passed=1)
    monkeypatch.setenv("THE_KEY", second)
    run(pytester, passed=1)


def test_before_seal_hook_names_more_secrets(pytester: pytest.Pytester, upstream: Upstream) -> None:
    file = project(pytester, SUNNY.replace("base_url := tape.url", 'tape.url, "I am ACME-12345"')) / FILE
    pytester.makeconftest(
        "import re\ndef pytest_wiretape_before_seal(text):\n    return re.findall(r'ACME-\\d+', text)\n"
    )
    upstream.run(pytester, "rewrite", passed=1)
    assert b"I am " in file.read_bytes()
    assert b"ACME-12345" not in file.read_bytes()
    run(pytester, passed=1)


# -- which file -------------------------------------------------------------------------------------------------------


def test_similar_names_get_different_files(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = """
@pytest.mark.parametrize("question", ["a", "a-", "a.", "-a", "a b", "", "A"])
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
    folder = project(pytester, source) / "test_it"
    upstream.run(pytester, "rewrite", passed=9)
    run(pytester, passed=9)
    names = {file.name for file in folder.iterdir()}
    assert len({name.lower() for name in names}) == 9, "some file systems ignore case"
    assert names > {"test_each-a.tape", "TestOne.TestIn.test_it.tape", "TestTwo.TestIn.test_it.tape"}


def test_tests_with_one_file_replay_it_and_do_not_record_it(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = """
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.tape(prefixes="frames")
def test_each(tape, number):
    with contextlib.suppress(httpx.TransportError):
        ask(tape.url)
"""
    runs = 2 * (len(text("hi", "sunny").reads) + 2)  # the places to cut it, and the whole
    file = project(pytester, source, {"test_it/test_each.tape": ONE}) / "test_it/test_each.tape"
    run(pytester, passed=runs)
    upstream.run(pytester, "rewrite", failed=2).stdout.fnmatch_lines(
        ["*test_each.tape is the tape of test_it.py::test_each?* too, so neither can record it: *"]
    )
    assert file.read_bytes() == ONE


def test_tests_that_name_another_tests_tape_replay_it(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
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
    folder = project(pytester, source)
    monkeypatch.delenv("CI")
    for mode in ("once", "rewrite", "replay"):
        assert upstream.run(pytester, mode).parseoutcomes().keys() == {"passed"}
    assert [file.name for file in folder.rglob("*.tape")] == ["test_own.tape"]


def test_shared_tape_is_recorded_by_one_test_alone(pytester: pytest.Pytester, upstream: Upstream) -> None:
    source = """
@pytest.mark.tape("shared.tape", partly=True)
def test_a(tape):
    ask(tape.url, "a")

@pytest.mark.tape("shared.tape", partly=True)
@pytest.mark.parametrize("question", ["b", "c"])
def test_b(tape, question):
    ask(tape.url, question)
"""
    file = project(pytester, source) / "shared.tape"
    old = conversation(text("a", "1"), text("b", "2"), text("c", "3"))
    upstream.run(pytester, "rewrite", failed=3)
    write(file, old)
    upstream.run(pytester, "replay", passed=3)
    upstream.run(pytester, "rewrite", failed=3).stdout.fnmatch_lines(
        ["*shared.tape is the tape of test_it.py::test_b?b? too, so neither can record it: *"]
    )
    assert file.read_bytes() == old
    assert not upstream.asked
    run(pytester, "--tape=rewrite", upstream.option, "-k", "test_a", passed=1, deselected=2)
    assert len(load(file).streams) == 1


# -- teardowns --------------------------------------------------------------------------------------------------------

TEARDOWN = """
@pytest.fixture
def thing(tape):
    ask(tape.url, "make it")
    yield tape
    assert ask(tape.url, "delete it").status_code == 200

@pytest.mark.tape
def test_it(thing):
    assert "sunny" in ask(thing.url, "use it").text
"""
FINALIZER = """
@pytest.fixture
def client(tape, request):
    request.addfinalizer(lambda: ask(tape.url, "delete it"))

@pytest.fixture
def session(client):
    return None

@pytest.mark.tape
def test_finalizer(tape, session):
    ask(tape.url, "make it"), ask(tape.url, "use it")
"""
ASYNC = """
@pytest.fixture
async def thing(tape):
    async with httpx.AsyncClient(transport=tape.transport, base_url="https://api.example.com/v1") as client:
        async def ask_it(question):
            return await client.post("/chat/completions", json=body_of(question))
        await ask_it("make it")
        yield ask_it
        await ask_it("delete it")

@pytest.mark.tape
async def test_it(thing):
    await thing("use it")
"""
LAST = 'assert ask(tape.url, "delete it").status_code == 200'
THREE = [text(words, "sunny") for words in ("make it", "use it", "delete it")]
ALL = conversation(*THREE)
MISSING = TEARDOWN.replace(LAST, 'ask(tape.url, "something else")')
LATE = {"passed": 1, "errors": 1}
XFAIL = MISSING.replace("@pytest.mark.tape", "@pytest.mark.xfail\n@pytest.mark.tape")


@pytest.mark.parametrize("mode", ["once", "verify", "replay"])
def test_requests_in_a_teardown_belong_to_the_test(
    pytester: pytest.Pytester, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.delenv("CI")
    names = ("test_it/test_it.tape", "test_it/test_finalizer.tape")
    folder = project(pytester, TEARDOWN + FINALIZER, dict.fromkeys(names, b"" if mode == "once" else ALL))
    upstream.run(pytester, mode, passed=2)
    assert upstream.asked == (0 if mode == "replay" else 6)
    if mode == "once":
        assert [len(load(folder / name).streams) for name in names] == [3, 3]
        run(pytester, "--tape=replay", passed=2)


@pytest.mark.parametrize(
    ("source", "sealed", "outcomes", "lines"),
    [
        (
            TEARDOWN.replace(LAST, "print()"),
            ALL,
            LATE,
            ["*ERROR at teardown of test_it*", "1 of 3 recorded streams were not asked for"],
        ),
        (TEARDOWN.replace("yield tape", "return tape"), ALL, FAILED, ["1 of 3 recorded streams were not asked for"]),
        (
            MISSING.replace("mark.tape", "mark.tape(partly=True)"),
            ALL,
            LATE,
            ["a request is not on the tape", '  messages*: "delete it" -> "something else"'],
        ),
        (ASYNC, ALL, PASSED, []),
        (ASYNC, conversation(*THREE, text("and more", "sunny")), FAILED, []),
        # The test's own failure comes first.
        (MISSING.replace("something else", 'else")\n    raise OSError("mine'), ALL, LATE, ["E * OSError: mine"]),
        (MISSING.replace('"sunny" in', '"rain" in'), ALL, FAILED, ["E * assert 'rain' in *"]),
        (
            MISSING.replace('assert "sunny" in ', 'pytest.skip("no weather")\n    '),
            ALL,
            {"skipped": 1},
            ["*1 skipped*"],
        ),
        (XFAIL, ALL, {"xpassed": 1, "xfailed": 1}, []),
    ],
)
def test_teardown(
    pytester: pytest.Pytester, source: str, sealed: bytes, outcomes: dict[str, int], lines: list[str]
) -> None:
    project(pytester, source, sealed)
    result = run(pytester, **outcomes)
    result.stdout.fnmatch_lines(lines)
    if "a request is not on the tape" not in lines:
        result.stdout.no_fnmatch_line("a request is not on the tape")


# -- prefixes ---------------------------------------------------------------------------------------------------------

AGENT = """
def run_calls(url):
    parts, line, done = {}, "", False
    try:
        with httpx.stream("POST", url + "/chat/completions", json=body_of("write"), verify=False) as response:
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

@pytest.mark.tape(prefixes="frames", end="eof")
def test_it(tape):
    ran = run_calls(tape.url)
    assert len(ran) == sum(call.whole for call in tape.fold.calls)
    if tape.prefix is None:
        assert ran == [{"path": "a.md", "text": "é"}] and tape.fold.ending == "completed"
    else:
        assert tape.fold.ending != "completed" or tape.prefix.frames >= 5
"""


def test_every_prefix_is_a_run_of_the_test(pytester: pytest.Pytester) -> None:
    """An agent that runs half a call fails at the prefixes inside that call."""
    sealed = conversation(calls("write", "write_file", '{"path":', '"a.md",', '"text":"é"}'))
    project(pytester, AGENT, sealed)
    run(pytester, "-v", passed=8).stdout.fnmatch_lines(["*test_it?write_file+8? PASSED*", "*?whole? PASSED*"])
    project(pytester, AGENT.replace("if done else []", "if parts else []"), sealed)
    run(pytester, passed=4, failed=4)


def test_prefix_of_a_stream_that_is_never_requested_fails(pytester: pytest.Pytester) -> None:
    source = """
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
    project(pytester, source, {"two.tape": TWO})
    # The second stream: three frames, its start, and the loop.
    run(pytester, passed=5, failed=5).stdout.fnmatch_lines(
        ["*start#2 cuts stream 2, which was not asked for, so this run tested nothing"] * 2
    )


# -- clients that find the tape by the environment --------------------------------------------------------------------

ENVIRONMENT = """
def ask_as_usual():
    with httpx.Client(base_url=os.environ["OPENAI_BASE_URL"]) as client:
        return client.post("chat/completions", json=body_of()).text

@pytest.mark.tape("one.tape")
def test_marker_alone():
    assert "sunny" in ask_as_usual()

@pytest.mark.tape("one.tape")
class TestClass:
    def test_it(self):
        assert "sunny" in ask_as_usual()

@pytest.mark.tape("one.tape", partly=True)
def test_elsewhere():
    with contextlib.suppress(Exception):
        httpx.get("https://api.example.com/v1/models")

@pytest.mark.tape("one.tape", partly=True)
async def test_address(autojump_clock):
    async with httpx.AsyncClient() as client:
        await client.get("http://192.0.2.1/v1/models")

@pytest.mark.tape("one.tape", partly=True)
@pytest.mark.parametrize("arguments", [("connect_ex",), ("sendto", b"x")], ids=["connect_ex", "sendto"])
def test_datagrams(arguments):
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        getattr(sock, arguments[0])(*arguments[1:], ("192.0.2.1", 9))

@pytest.mark.tape("one.tape", prefixes="frames", end="eof")
def test_prefixes():
    with contextlib.suppress(httpx.TransportError):
        ask_as_usual()

def test_without_a_tape():
    assert "OPENAI_BASE_URL" not in os.environ
"""


def test_clients_that_read_the_environment_get_the_tape_and_nothing_else(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    project(pytester, ENVIRONMENT, {"one.tape": ONE})
    result = run(pytester, "--tape-env", passed=8, failed=4)
    datagrams = [(f"test_datagrams?{way}?", "192.0.2.1:9") for way in ("connect_ex", "sendto")]
    for test, host in (("test_elsewhere", "api.example.com:443"), ("test_address", "192.0.2.1:80"), *datagrams):
        result.stdout.fnmatch_lines([f"*test_it.py::{test} tried to reach {host}, and --tape-env allows *"])


def test_marker_that_no_test_of_its_class_uses_is_warned_of(pytester: pytest.Pytester) -> None:
    project(pytester, "@pytest.mark.tape\nclass TestIt:\n    def test_it(self):\n        pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*test_it.py::TestIt: no test here uses the `tape` fixture*"])


# -- the run as a whole -----------------------------------------------------------------------------------------------


def test_options_override_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntape = replay\ntape_speed = original\ntape_max_age = 10\n")
    project(pytester, SUNNY, ONE)
    run(pytester, failed=1).stdout.fnmatch_lines(["*test_it.tape was recorded * days ago, and 10 are allowed"])
    run(pytester, "--tape-max-age", "100000", passed=1)


WRONG = {
    "prefix='frames'": "the tape marker knows no prefix; it knows end, fault, match, *",
    "match='zz'": "the tape marker's match is key or position, not 'zz'",
    "prefixes='zz'": "the tape marker's prefixes is frames or bytes, not 'zz'",
    "prefixes='frames', end='zz'": "the tape marker's end is cut or eof or reset or stall or garbage, not 'zz'",
    "speed='inf'": "the tape marker's speed is instant, original or a factor such as 10, not 'inf'",
    "speed=-1": "the tape marker's speed is instant, original or a factor such as 10, not -1",
    "max_gap_ms='x'": "the tape marker's max_gap_ms is a number of milliseconds, not 'x'",
    "fault='zz'": "the tape marker: fault 'zz': *",
    "fault='rechunk=x'": "the tape marker: fault 'rechunk=x': *",
}


def test_wrong_marker_is_one_line_in_one_test(pytester: pytest.Pytester) -> None:
    tests = [f"@pytest.mark.tape({marked})\ndef test_{at}(tape): ask(tape.url)\n" for at, marked in enumerate(WRONG)]
    project(pytester, "\n".join(tests))
    result = run(pytester, failed=len(WRONG))
    result.stdout.fnmatch_lines(list(WRONG.values()))
    assert "Traceback" not in str(result.stdout)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("tape=never", "the setting tape is one of replay, once, rewrite, verify, off"),
        ("tape_speed=zz", "the setting tape_speed is instant, original or a factor such as 10, not 'zz'"),
        ("tape_max_age=q", "the setting tape_max_age is a number of days, not 'q'"),
    ],
)
def test_wrong_setting_is_one_line(pytester: pytest.Pytester, setting: str, line: str) -> None:
    project(pytester, SUNNY, ONE)
    result = run(pytester, "-o", setting)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [each for each in result.errlines if each] == [f"ERROR: {line}"]


def test_xdist_workers_each_have_a_server_and_report_to_one_place(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.parametrize("number", range(12))
@pytest.mark.tape("one.tape")
def test_each(tape, number):
    assert "sunny" in ask(tape.url).text
"""
    project(
        pytester,
        MISSING.replace("def test_it", "def test_late") + source,
        {"one.tape": ONE, "test_it/test_late.tape": ALL, "test_it/gone.tape": ONE},
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--tape-check-unused")
    result.assert_outcomes(passed=13, failed=1, errors=1)
    result.stdout.fnmatch_lines(["a request is not on the tape"])


@pytest.mark.parametrize(
    ("place", "options", "due"),
    [
        ("test_it/gone.tape", (), True),
        ("loose.tape", ("-k", "nothing"), True),
        ("test_it/gone.tape", ("test_it.py::test_it",), False),
        ("test_it/gone.tape", ("test_it.py",), False),
        ("test_other/its.tape", ("--ignore", "test_other.py"), False),
    ],
)
def test_check_unused_fails_the_run(pytester: pytest.Pytester, place: str, options: Sequence[str], due: bool) -> None:
    folder = project(pytester, SUNNY, {FILE: ONE, place: ONE})
    pytester.makepyfile(test_other="def test_nothing():\n    pass\n")
    result = run(pytester, "--tape-check-unused", *options)
    assert (f"belongs to no test: {folder / place}" in result.outlines) is due
    assert (result.ret == pytest.ExitCode.TESTS_FAILED) is due


def test_check_unused_reports_a_link_to_itself(pytester: pytest.Pytester) -> None:
    folder = project(pytester, SUNNY, {FILE: ONE})
    (folder / "loop.tape").symlink_to("loop.tape")
    result = run(pytester, "--tape-check-unused")
    assert f"belongs to no test: {folder / 'loop.tape'}" in result.outlines


def test_run_without_tapes_imports_nothing(pytester: pytest.Pytester) -> None:
    source = """
import sys
def test_it():
    assert {name for name in sys.modules if name.startswith("wiretape.")} == {
        "wiretape.replay", "wiretape.replay.pytest_plugin", "wiretape.replay.pytest_plugin.plugin"}
"""
    project(pytester, source)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
