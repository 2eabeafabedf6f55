"""L7 across requests: every call of generated conversations has one terminal state, reported once, in order.

Clients of two callers hold conversations that interleave: they answer calls in any order, in part, late, wrongly or
never, send a request again, which then says what it said before, or rename ids; their provider reuses ids, cuts streams
and stops at its limit; and between two turns the store may restart from its tapes. A model knows what
the rules promise: what each stream reports, which call each result answered, and how it ended.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.laws.variants import FULL
from tests.proxy.scripted import Script, chunk, request_of
from tests.proxy.store_cases import fates_in, opened_files
from tests.support.house import DONE, HEAD, House, finish, frame, house, role, text
from wiretape.events.core.lifecycle import TERMINAL
from wiretape.events.emit import Summariser
from wiretape.events.tape.record import Record
from wiretape.proxy.api.streams import summary_json
from wiretape.proxy.store.catalogue_row import CallRow, Fate
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter, Store

pytestmark = pytest.mark.slow

#: Long after everything.
LATER_S: Final = 1_700_000_000.0 + 10_000_000
ENDED: Final = frozenset(state.value for state in TERMINAL)


class Step(NamedTuple):
    """One turn of one conversation."""

    #: Of four: the callers take turns.
    conversation: int
    #: What the client does with the calls that it was handed.
    client: str
    #: What its provider answers.
    provider: str
    ids: str
    calls: int
    #: Arguments that every such call has.
    same: bool
    internal: bool
    #: The same request is sent again, and the second answer counts.
    again: bool
    #: The store restarts before it.
    restart: bool


STEPS = st.lists(
    st.builds(
        Step,
        conversation=st.integers(0, 3),
        client=st.sampled_from(["all", "reversed", "some", "none", "orphan", "failed", "twice", "renamed"]),
        provider=st.sampled_from(["calls", "calls", "calls", "text", "cut", "length"]),
        ids=st.sampled_from(["unique", "call_{}", "tool:{}"]),
        calls=st.integers(1, 3),
        same=st.booleans(),
        internal=st.booleans(),
        again=st.booleans(),
        restart=st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


class Call(NamedTuple):
    """As a provider makes it."""

    id: str
    name: str
    arguments: str


class Made:
    """One call that was handed over, and what the model knows about it."""

    def __init__(self, stream: str, caller: int, messages: int, call: Call) -> None:
        self.stream = stream
        self.call = call
        #: What it has in common with calls that cannot be distinguished from it.
        self.alike = (caller, messages, *call)
        self.answered_by = ""
        self.failed = False


class Conversation:
    """What a client holds."""

    def __init__(self, number: int) -> None:
        self.caller = number % 2
        self.history: list[dict[str, Any]] = [{"role": "user", "content": f"conversation {number}"}]
        #: Handed over by the last answer.
        self.open: list[Made] = []
        #: It calls them otherwise.
        self.own = False

    def asks(self, how: str) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """Return the new messages, and what the answering stream must report about them."""
        if not self.open or how == "none":
            return [{"role": "user", "content": "go on"}], []
        made = self.open[::-1] if how == "reversed" else self.open[1:] if how == "some" else self.open
        answers: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": self.id_of(each), "content": each.call.id} for each in made
        ]
        if how == "failed":
            answers[0]["is_error"] = True
        if how == "orphan":
            answers.insert(0, {"role": "tool", "tool_call_id": "ghost", "content": "boo"})
        if how == "twice":
            answers += answers
        told = [
            ("failed" if how == "failed" and each is made[0] else "completed", self.id_of(each))
            for each in made
            if not each.call.name.startswith("_")
        ]
        return answers, told

    def id_of(self, made: Made) -> str:
        return f"own-{made.call.id}" if self.own else made.call.id

    def rename(self) -> None:
        """Give the open calls ids of the client, which the proxy has never seen."""
        if self.open:
            self.own = True
            self.history[-1] = _said([made.call._replace(id=self.id_of(made)) for made in self.open])

    def knows(self, how: str, stream: str) -> None:
        """The calls that this request answered, the first time."""
        made = [] if how == "none" or self.own else self.open[1:] if how == "some" else self.open
        for number, each in enumerate(made):
            if not each.answered_by:
                each.answered_by, each.failed = stream, how == "failed" and number == 0


def _said(calls: Sequence[Call]) -> dict[str, Any]:
    entries = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in calls]
    return {"role": "assistant", "content": None, "tool_calls": entries}


class Provider:
    """Answers each request with what was put into it."""

    def __init__(self) -> None:
        self.next: list[tuple[bytes, bool]] = []

    def script(self) -> Script:
        async def play(stream: trio.abc.Stream) -> None:
            while await request_of(stream):
                body, whole = self.next.pop(0)
                await trio.sleep(1)
                await stream.send_all(HEAD + chunk(body) + (b"0\r\n\r\n" if whole else b""))
                if not whole:
                    return

        return play

    def answers(self, step: Step, calls: Sequence[Call]) -> None:
        """The bytes of one answer; what is cut has said something before, so it is not asked again."""
        body = role() + text("well")
        if step.provider != "text":
            body += b"".join(_frames(calls, whole=step.provider == "calls"))
        ends = {"text": finish() + DONE, "calls": finish("tool_calls") + DONE, "length": finish("length") + DONE}
        self.next.append((body + ends.get(step.provider, b""), step.provider != "cut"))


def _frames(calls: Sequence[Call], *, whole: bool) -> Iterator[bytes]:
    for number, call in enumerate(calls):
        arguments = call.arguments if whole else call.arguments[:-1]
        function = {"name": call.name, "arguments": arguments}
        yield frame({"tool_calls": [{"index": number, "id": call.id, "type": "function", "function": function}]})


class Restarting:
    """A store that restarts with nothing but its tapes."""

    def __init__(self) -> None:
        self.inner = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def restart(self, streams: Sequence[str]) -> None:
        old, self.inner = self.inner, MemoryStore()
        for stream in streams:
            await self.inner.create(stream)
            await self.inner.append(stream, [record async for batch in old.read(stream) for record in batch])


class World:
    """The conversations, and all that the model knows."""

    def __init__(self) -> None:
        self.conversations = [Conversation(number) for number in range(4)]
        self.provider = Provider()
        self.made: list[Made] = []
        self.tapes: dict[str, list[Record]] = {}
        self._numbers = count()

    async def play(self, steps: Sequence[Step]) -> None:
        store = Restarting()
        memory: Any = store
        async with house(self.provider.script(), store=memory) as home:
            for step in steps:
                if step.restart:
                    before = {stream: await fates_in(memory, stream, LATER_S) for stream in home.streams}
                    await store.restart(home.streams)
                    assert before == {stream: await fates_in(memory, stream, LATER_S) for stream in home.streams}
                await self.turn(home, step)
            await self.check(memory, home.streams)
            self.tapes = {stream: await home.tape(stream) for stream in home.streams}

    async def turn(self, home: House, step: Step) -> None:
        conversation = self.conversations[step.conversation]
        if step.client == "renamed":
            conversation.rename()
        asks, told = conversation.asks(step.client)
        messages = [*conversation.history, *asks]
        calls: list[Call] = []
        handed: list[Made] = []
        durations: list[list[int | None]] = []
        for _ in range(2 if step.again else 1):
            calls = self.calls(step)
            self.provider.answers(step, calls)
            key = f"Authorization: Bearer caller-{conversation.caller}"
            answer = await home.ask({"model": "m", "stream": True, "messages": messages}, key)
            await home.settled()
            own = [
                ("running" if step.provider == "calls" else "dropped", call.id)
                for call in calls
                if not call.name.startswith("_")
            ]
            assert told_by(answer.body) == told + own
            durations.append(durations_in(answer.body))
            assert durations[0] == durations[-1], "a retry says what the first one said"
            conversation.knows(step.client, home.streams[-1])
            handed = [Made(home.streams[-1], conversation.caller, len(messages), call) for call in calls]
            self.made += handed if step.provider == "calls" else []
        if step.provider in ("calls", "text"):
            said = _said(calls) if calls else {"role": "assistant", "content": "well"}
            conversation.history, conversation.open, conversation.own = [*messages, said], handed, False

    def calls(self, step: Step) -> list[Call]:
        if step.provider == "text":
            return []
        number = next(self._numbers)
        return [
            Call(
                id=f"id-{number}-{place}" if step.ids == "unique" else step.ids.format(place),
                name="_plan" if step.internal and place == 0 else "read",
                arguments='{"path":"."}' if step.same else f'{{"path":"{number}"}}',
            )
            for place in range(step.calls)
        ]

    async def check(self, store: Store, streams: Sequence[str]) -> None:
        """Check that every call has ended once, and in the right way where that is known."""
        fates = {stream: await fates_in(store, stream, LATER_S) for stream in streams}
        for stream in streams:
            summariser = Summariser()
            async for batch in store.read(stream):
                for record in batch:
                    summariser.feed(record)
            for call in summary_json(stream, summariser, fates=fates[stream])["tools"]:
                assert call["state"] in ENDED, call
        alike = Counter(made.alike for made in self.made)
        for made in self.made:
            if alike[made.alike] == 1:
                check_fate(made, fates[made.stream][made.call.id])
        answers = Counter((fate.answered_by, call) for own in fates.values() for call, fate in own.items())
        assert all(times == 1 for (stream, _), times in answers.items() if stream), "a result answers one call"


def check_fate(made: Made, fate: Fate) -> None:
    state = "abandoned" if not made.answered_by else "failed" if made.failed else "completed"
    assert (fate.state.value, fate.answered_by) == (state, made.answered_by), vars(made)
    assert (fate.duration_ms is None) == (state == "abandoned")


def told_by(body: bytes) -> list[tuple[str, str]]:
    """Status and id of each lifecycle frame."""
    return [(said["status"], said["toolCallId"]) for said in _lifecycle(body)]


def durations_in(body: bytes) -> list[int | None]:
    """How long each call took that the request answers."""
    return [said.get("duration_ms") for said in _lifecycle(body) if said["status"] in ("completed", "failed")]


def _lifecycle(body: bytes) -> list[dict[str, Any]]:
    frames = [each for each in body.split(b"\n\n") if each.startswith(b"event: hermes.tool.progress")]
    return [json.loads(each.partition(b"data: ")[2]) for each in frames]


def played(steps: Sequence[Step]) -> World:
    world = World()
    trio.run(world.play, steps, clock=MockClock(autojump_threshold=0))
    return world


def _step(client: str, provider: str, calls: int = 1) -> Step:
    return Step(0, client, provider, "unique", calls, same=False, internal=False, again=False, restart=False)


@settings(max_examples=1_000 if FULL else 40)
@given(steps=STEPS)
@example(steps=[_step("all", "calls", 2), _step("renamed", "cut"), _step("some", "calls")])
def test_every_call_of_any_conversation_ends_once_and_is_reported_once(steps: list[Step]) -> None:
    played(steps)


@settings(max_examples=100 if FULL else 8)
@given(steps=STEPS)
def test_rebuilt_catalogue_equals_the_one_on_disk(steps: list[Step]) -> None:
    world = played(steps)

    async def on_disk(root: Path) -> None:
        async with opened_files(root) as store:
            for stream, records in world.tapes.items():
                await store.create(stream)
                await store.append(stream, records)
            await world.check(store, list(world.tapes))
        (root / "catalogue.db").unlink()
        async with opened_files(root) as store:
            with trio.fail_after(60):
                while len(await store.list(Filter())) < len(world.tapes):
                    pass
            await world.check(store, list(world.tapes))

    with TemporaryDirectory() as root:
        trio.run(on_disk, Path(root))


def first_of_all(calls: Iterable[CallRow], *_: object) -> CallRow | None:
    return next(iter(calls), None)


def no_digest(_: bytes) -> str:
    return ""


def again_and_again(self: Any, n: int, writer: Any) -> Any:
    return [writer.result_card(n, result) for result in self.due]


@pytest.mark.parametrize(
    ("place", "broken", "again"),
    [
        ("wiretape.proxy.store.catalogue_row._best", first_of_all, False),
        ("wiretape.proxy.relay.stream_request.request_digest", no_digest, True),
        ("wiretape.proxy.store.catalogue_row.ABANDONED_AFTER_S", 10**9, False),
        ("wiretape.events.emission.cards.Cards.of_results", again_and_again, False),
    ],
    ids=[
        "the first call of an id",
        "a retry is not known",
        "no call is ever given up",
        "results are told with each chunk",
    ],
)
def test_the_law_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch, place: str, broken: Any, again: bool) -> None:
    step = Step(0, "all", "calls", "call_{}", 2, same=True, internal=False, again=again, restart=True)
    steps = [step, step, step]
    played(steps)
    monkeypatch.setattr(place, broken)
    with pytest.raises(ExceptionGroup) as found:
        played(steps)
    assert found.group_contains(AssertionError)
