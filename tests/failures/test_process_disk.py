"""A disk that is full, broken or gone, through the whole proxy: what clients get, and what the disk has after."""

import errno
import os
import resource
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Script, chunk, request_of
from tests.support.house import ASKED, DONE, HEAD, House, Peer, Watched, at_once, call, finish, house, post, role, text
from tests.support.http import Answer
from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader
from wiretape.proxy.store import tape_file
from wiretape.proxy.store.files import FileStore, open_files, recover
from wiretape.proxy.store.folder import Folder
from wiretape.proxy.store.tape_file import Durability

FRAMES: Final = (role(), text("hi"), call("{", "look"), call("}"), finish("tool_calls"), DONE)
#: How the same answer may come.
WAYS: Final = {"frame by frame": Peer(*FRAMES, every_s=0.002), "at once": at_once(*FRAMES)}
#: How writing may fail: the error, and what the proxy may hope for after it.
FAULTS: Final = {"full": errno.ENOSPC, "input/output": errno.EIO}


class Faulty:
    """The system calls of one tape file, of which the N-th fails, or all from there on."""

    def __init__(self, at: int, fault: str, *, on: bool = False) -> None:
        self.calls: list[str] = []
        self._at = at
        self._fault = fault
        self._on = on

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "write"):
            return real

        def called(*given: Any) -> Any:
            if name == "open" and not given[1] & os.O_WRONLY:
                return real(*given)  # readers have calls of their own
            self.calls.append(name)
            hit = len(self.calls) == self._at or (self._on and len(self.calls) > self._at)
            if hit and self._fault == "short" and name == "write":
                return real(given[0], given[1][: len(given[1]) // 2])
            if hit:
                code = FAULTS.get(self._fault, errno.ENOSPC)
                raise OSError(code, os.strerror(code))
            return real(*given)

        return called


@asynccontextmanager
async def filed(
    root: Path,
    *scripts: Script,
    durability: Durability = "process",
    sync: Callable[[Collection[int]], Mapping[int, str]] | None = None,
    **how: Any,
) -> AsyncGenerator[tuple[House, FileStore]]:
    """The house over a real disk, hence in real time."""
    async with (
        open_files(root, warn=lambda _: None, durability=durability, sync=sync, round_s=0.05) as store,
        house(*scripts, store=store, check=False, **how) as home,
    ):
        yield home, store
        with trio.fail_after(30):
            await home.settled()


def still_open(store: Any) -> int:
    """Tapes that are held for more to come; those that have ended are moved by the next commit round."""
    return sum(not live.ended for live in store._live.values())


def tapes(root: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in root.rglob("*.tape")}


def checked(root: Path, answers: Collection[Answer]) -> dict[str, str]:
    """Never a half record before a whole one, one ending each after the next start, and nothing was said that is not on
    the tape; the ending of each stream.
    """
    for name, data in tapes(root).items():
        reader = Reader()
        reader.feed(data)
        assert reader.torn == b"", name
        assert [damage.reason.split()[0] for damage in reader.damage] in ([], ["records"]), name
    folder = Folder(root)
    try:
        recover(folder, lambda _: {})
    finally:
        folder.close()
    endings: dict[str, str] = {}
    found = tapes(root)
    for name, data in found.items():
        records = Reader().feed(data)
        assert [record.kind for record in records].count("end") == 1, name
        assert records[-1].kind == "end", name
        endings[name] = records[-1].keys["ending"]
        assert endings[name] != "internal" or "log_failure" in records[-1].keys["flags"]
    for answered in answers:
        stream = (answered.header(b"x-wiretape-stream") or b"").decode()
        if answered.status == 200 and stream in found:
            emitted = emit(Reader().feed(found[stream]))
            # What we say of the end differs by who said it: the next start knows less.
            sent = answered.body.partition(b'data: {"error"')[0]
            if b'"status":"dropped"' in sent:
                sent = sent[: sent.rindex(b"event: ")]
            assert emitted.startswith(sent), stream
    return endings


def told_whole(answered: Answer) -> None:
    """Expect the whole answer, or the reason: in the stream if something was delivered, else as a status."""
    if answered.status != 200:
        assert (answered.status, b"log_failure" in answered.body) == (503, True)
        return
    assert answered.ended == "chunked"
    if b"[DONE]" not in answered.body:
        assert b'"code":"internal"' in answered.body
        assert b"look" not in answered.body or b"dropped_tools" in answered.body


async def readiness(home: House) -> tuple[int, bytes]:
    answered = await home.ask(b"", path="/wiretape/readyz", method="GET")
    return answered.status, answered.body


@pytest.mark.slow
@pytest.mark.case("P06", "P07", "P11", "P22")
@pytest.mark.parametrize("on", [False, True], ids=["once", "from there on"])
@pytest.mark.parametrize("fault", [*FAULTS, "short"])
@pytest.mark.parametrize("way", WAYS)
async def test_any_failing_disk_call_ends_the_stream_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, fault: str, on: bool
) -> None:
    """on_log_failure = stop. Each call in turn, until a run has fewer."""
    at = 0
    while True:
        at += 1
        root, faulty = tmp_path / str(at), Faulty(at, fault, on=on)
        with monkeypatch.context() as patched:
            async with filed(root, WAYS[way]) as (home, store):
                patched.setattr(tape_file, "os", faulty)
                first = await home.ask()
                await home.settled()
                assert still_open(store) == 0
                early, failing = len(faulty.calls) >= at, store.health.failure != ""
                assert (await readiness(home))[0] == (503 if failing else 200)
                second = await home.ask()
                await home.settled()
                assert still_open(store) == 0
                hit = len(faulty.calls) >= at
        for answered in (first, second):
            told_whole(answered)
        if early:
            lasting = on  # of a failed call nothing is left but its stream
            assert (second.status, b"[DONE]" in second.body) == ((503, False) if lasting else (200, True)), at
        endings = checked(root, [first, second])
        assert set(endings.values()) <= {"internal", "completed", "crashed"}
        if b"[DONE]" not in first.body and home.streams[0] in endings:
            assert endings[home.streams[0]] in ("internal", "crashed")
        if not hit:
            break
    assert at > 5


@pytest.mark.slow
@pytest.mark.case("P06", "P07", "P11", "P22")
@pytest.mark.parametrize(("fault", "on"), [("full", False), ("input/output", True), ("short", False)])
@pytest.mark.parametrize("way", WAYS)
async def test_streams_survive_any_failing_disk_call_if_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, fault: str, on: bool
) -> None:
    """on_log_failure = serve: every stream is whole, and says that it is untaped."""
    at = 0
    while True:
        at += 1
        root, faulty = tmp_path / str(at), Faulty(at, fault, on=on)
        with monkeypatch.context() as patched:
            async with filed(root, WAYS[way], config={"on_log_failure": "serve"}) as (home, store):
                patched.setattr(tape_file, "os", faulty)
                answers = [await home.ask() for _ in range(2)]
                await home.settled()
                assert still_open(store) == 0
                hit = len(faulty.calls) >= at
                for answered in answers:
                    assert (answered.status, answered.ended) == (200, "chunked")
                    assert answered.body.endswith(DONE)
                assert (b"wiretape_streams_untaped_total 0.0" not in home.assembly.metrics.text()) == hit
        checked(root, [])
        if not hit:
            break
    assert at > 5


def going_on(go: trio.Event) -> Script:
    """Return an upstream that sends the rest of its stream once `go` is set."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(role()) + chunk(text("hi")))
        await go.wait()
        await stream.send_all(b"".join(map(chunk, (text("you"), finish(), DONE))) + b"0\r\n\r\n")

    return script


@pytest.mark.case("P07")
@pytest.mark.parametrize("how", ["stop", "serve"])
async def test_tape_that_failed_to_sync_is_never_appended(tmp_path: Path, how: str) -> None:
    failing = False

    def sync(fds: Collection[int]) -> Mapping[int, str]:
        return dict.fromkeys(fds, "Input/output error") if failing else {}

    go = trio.Event()
    async with filed(tmp_path, going_on(go), sync=sync, config={"on_log_failure": how}) as (home, store):
        client = await home.connect()
        failing = True  # before a round has taken what is written, since no other may come
        await client.send(post())
        with trio.fail_after(30):
            while not store.health.failure:  # noqa: ASYNC110 - it is noticed in a thread
                await trio.sleep(0.02)
        go.set()
        answered = await client.response()
        client.close()
        refused = await home.ask()
        failing = False
        assert answered.body.endswith(DONE) == (how == "serve")
        assert (b'"code":"internal"' in answered.body) == (how == "stop")
        assert refused.status == (503 if how == "stop" else 200)


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """RLIMIT_FSIZE of this process; Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.case("P06", "P11")
@pytest.mark.parametrize("size", [1, 700, 1_500, 2_001, 3_333])
async def test_streams_start_again_when_the_disk_has_room(tmp_path: Path, size: int) -> None:
    words = [text(f"{number} " + "w" * 200) for number in range(30)]
    script = Peer(role(), *words, finish(), DONE)
    async with filed(tmp_path, script) as (home, store):
        before = await home.ask()
        with files_up_to(size):
            answered = await home.ask()
            await home.settled()
            assert (await readiness(home))[0] == (503 if store.health.failure else 200)
            again = await home.ask()
        after = await home.ask()
        await home.settled()
        assert (await readiness(home))[0] == 200
        assert still_open(store) == 0
    assert [each.body.endswith(DONE) for each in (before, answered, again, after)] == [True, False, False, True]
    for each in (answered, again):
        assert each.status == 503 or b'"code":"internal"' in each.body
    endings = checked(tmp_path, [before, answered, again, after])
    assert list(endings.values()).count("completed") == 2


@pytest.mark.case("P06")
async def test_always_full_device_starts_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Faulty):
        def __getattr__(self, name: str) -> Any:
            def full(*_: Any) -> int:
                return os.open("/dev/full", os.O_WRONLY)

            return full if name == "open" else getattr(os, name)

    async with filed(tmp_path, Peer(*FRAMES, every_s=0.002)) as (home, store):
        monkeypatch.setattr(tape_file, "os", Full(0, "full"))
        answers = [await home.ask() for _ in range(2)]
        assert [answered.status for answered in answers] == [503, 503]
        assert still_open(store) == 0
        assert (await readiness(home))[0] == 503


def _delete(folder: Path) -> None:
    """The catalogue's journal may go by itself meanwhile, or come again where its folder was just found empty."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.case("P09")
@pytest.mark.slow
@pytest.mark.parametrize("what", ["deleted", "moved away"])
async def test_removed_data_folder_is_noticed_within_a_second(tmp_path: Path, what: str) -> None:
    """What a busy machine adds to the second it does not add each time."""
    for number in range(4):
        if await _noticed_s(tmp_path / str(number), what) <= 1.2:
            return
    pytest.fail("it was noticed later each time")


async def _noticed_s(folder: Path, what: str) -> float:
    root, go = folder / "data", trio.Event()
    async with open_files(root, warn=lambda _: None) as store, house(going_on(go), store=store, check=False) as home:
        client = await home.connect()
        await client.send(post())
        await client.stream.receive_some(10)
        await trio.to_thread.run_sync(_delete, root) if what == "deleted" else root.rename(folder / "away")
        went = trio.current_time()
        with trio.fail_after(10):
            while not store.health.gone:  # noqa: ASYNC110 - it is noticed in a thread
                await trio.sleep(0.02)
        noticed_s = trio.current_time() - went
        assert (await home.ask()).status == 503
        assert (await readiness(home))[1] == b'{"ready":false,"reasons":["data_folder_gone"]}'
        go.set()
        got = b""
        with trio.move_on_after(2):
            while not got.endswith(b"0\r\n\r\n"):
                got += await client.receive()
        client.close()
        assert b'"code":"internal"' in got, (got, home.log)
        await home.settled()
        return noticed_s


@pytest.mark.case("P06", "C04")
@pytest.mark.parametrize("how", ["stop", "serve"])
async def test_slow_client_of_a_stream_without_tape_sees_it_as_broken(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    """It reads from the log what the log never got."""
    pieces = [text("a" * 10_000)] * 300
    async with house(
        Peer(role(), *pieces, finish(), DONE, every_s=0.01),
        store=Watched(lambda record: record.n > 150),
        config={"on_log_failure": how},
        check=False,
    ) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post(ASKED))
        await trio.sleep(10)
        answered = await client.response()
        client.close()
        assert b"[DONE]" not in answered.body
        assert answered.ended == "cut" or b'"code":"internal"' in answered.body
        await home.settled()


@pytest.mark.case("P06")
@pytest.mark.parametrize("sized", [True, False], ids=["a length", "chunked"])
@pytest.mark.parametrize("from_n", [4, 5, 6, 7], ids=["its first part", "its second part", "its status", "its end"])
async def test_whole_answer_after_a_log_failure_is_an_error(
    autojump_clock: MockClock, *, sized: bool, from_n: int
) -> None:
    """Its status comes last, and nothing goes out before that. Only a failure at its `end` record leaves it whole."""
    parts = [b'{"object":"chat.completion","choices":', b'[{"index":0,"message":{"content":"hi"}}]}']
    framing = b"Content-Length: %d" % sum(map(len, parts)) if sized else b"Transfer-Encoding: chunked"

    head = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n%b\r\n\r\n" % framing
    peer = Peer(*parts, head=head, every_s=1, end="fin" if sized else "final")
    store = Watched(lambda record: record.n >= from_n)
    async with house(peer, store=store, config={"on_log_failure": "stop"}, check=False) as home:
        answered = await home.ask({**ASKED, "stream": False})
        assert (answered.status, answered.ended == "cut") == (503 if from_n < 7 else 200, False)
        assert answered.body == b"".join(parts) if from_n == 7 else b"log_failure" in answered.body
        assert not home.harness.log
        await home.settled()
