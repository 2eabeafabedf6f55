"""Canonical streams with quirks injected at random come out canonical and mean the same; junk comes out canonical.

All streams are generated (synthetic). `WIRETAPE_LAWS=full` runs many more.
"""

import json
import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.events.chat.mutators import MUTATORS, Meant, build, junk
from tests.support.chat import Run, run, tape
from wiretape.events.emit import emit

FULL = os.environ.get("WIRETAPE_LAWS") == "full"
EXAMPLES = settings(max_examples=3000 if FULL else 150)

NAMES = ("read_file", "list_dir", "exec")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.dictionaries(TEXTS.filter(bool), TEXTS | st.integers(-5, 5) | st.just({"a": ["{", "]"]}), max_size=2)
MEANT = st.builds(Meant, TEXTS, TEXTS, st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=3))
SEEDS = st.integers(0, 2**32)


class Client:
    """The strictest client: it takes every frame at its word and raises at what it does not expect."""

    def __init__(self) -> None:
        self.heads: set[tuple[str, str, str, int]] = set()
        self.roles: dict[int, int] = {}
        self.finishes: dict[int, list[str]] = {}
        self.texts: dict[int, str] = {}
        self.thoughts: dict[int, str] = {}
        self.calls: dict[int, list[dict[str, str]]] = {}
        self.ids: list[str] = []
        self.errors: list[Any] = []
        self.dones = 0

    def read(self, frame: bytes) -> None:
        """The next frame."""
        assert not self.dones
        assert not self.errors
        assert frame.endswith(b"\n\n")
        data = frame.partition(b"data: ")[2][:-2]
        if data == b"[DONE]":
            self.dones += 1
            return
        value = json.loads(data)
        if "error" in value and "choices" not in value:
            assert isinstance(value["error"]["message"], str)
            self.errors.append(value["error"])
            return
        self.heads.add((value["id"], value["object"], value.get("model", ""), value.get("created", 0)))
        for choice in value["choices"]:
            self.choice(choice)

    def choice(self, choice: dict[str, Any]) -> None:
        """One choice of a chunk."""
        index, delta = choice["index"], choice["delta"]
        assert type(index) is int
        assert index >= 0
        if "role" in delta:
            assert isinstance(delta["role"], str)
            self.roles[index] = self.roles.get(index, 0) + 1
        assert index in self.roles
        self.texts[index] = self.texts.get(index, "") + (delta.get("content") or "")
        thought = delta.get("reasoning_content")
        self.thoughts[index] = self.thoughts.get(index, "") + (thought if isinstance(thought, str) else "")
        for entry in delta.get("tool_calls", ()):
            self.call(self.calls.setdefault(index, []), entry)
        if choice["finish_reason"] is not None:
            assert choice["finish_reason"] in ("stop", "length", "tool_calls", "content_filter", "function_call")
            self.finishes.setdefault(index, []).append(choice["finish_reason"])

    def call(self, calls: list[dict[str, str]], entry: dict[str, Any]) -> None:
        """One entry of `tool_calls`."""
        index, function = entry["index"], entry.get("function", {})
        assert type(index) is int
        if "id" in entry:
            assert index == len(calls)
            assert isinstance(entry["id"], str)
            assert entry["id"]
            assert isinstance(entry["type"], str)
            self.ids.append(entry["id"])
            calls.append({"name": function["name"], "arguments": function["arguments"]})
            assert function["name"]
            assert isinstance(function["arguments"], str)
            return
        calls[index]["name"] += function.get("name", "")
        calls[index]["arguments"] += function.get("arguments", "")


def read(result: Run) -> Client:
    """All frames, and the bars that hold for any stream whatsoever."""
    client = Client()
    for frame in result.sent:
        client.read(frame)
    assert len({(head[0], head[1]) for head in client.heads}) <= 1
    assert all(count == 1 for count in client.roles.values())
    assert all(len(finishes) == 1 for finishes in client.finishes.values())
    assert len(set(client.ids)) == len(client.ids)
    assert client.dones + len(client.errors) == 1
    return client


def mutated(meant: Meant, names: set[str], seed: int) -> Any:
    """The stream with those quirks that go together."""
    stream = build(meant, Random(seed))  # noqa: S311 - not for secrets
    for name, (mutate, rules_out) in MUTATORS.items():
        if name in names and not rules_out & stream.taken:
            mutate(stream)
            stream.taken.add(name)
    return stream


def check_meaning(meant: Meant, result: Run) -> None:
    """Check that the client reads what was meant."""
    client = read(result)
    assert result.ended.ending == "completed"
    assert client.errors == []
    assert client.texts.get(0, "") == meant.text
    assert client.thoughts.get(0, "") == meant.thought
    calls = [(call["name"], json.loads(call["arguments"])) for call in client.calls.get(0, [])]
    assert calls == meant.calls
    assert client.finishes == {0: ["tool_calls" if meant.calls else "stop"]}
    folded = [(call.name, json.loads(call.arguments)) for call in result.wire.calls()]
    assert folded == meant.calls


SAMPLE = Meant("hm, well", "hello there", [("read_file", {"path": "a {b}"}), ("list_dir", {}), ("exec", {"x": 1})])


@pytest.mark.parametrize("name", MUTATORS)
def test_each_quirk_alone_changes_nothing_that_is_meant(name: str) -> None:
    for seed in range(20):
        check_meaning(SAMPLE, run(tape(mutated(SAMPLE, {name}, seed).frames())))


@given(MEANT, st.sets(st.sampled_from(sorted(MUTATORS))), SEEDS)
@EXAMPLES
def test_quirks_together_change_nothing_that_is_meant(meant: Meant, names: set[str], seed: int) -> None:
    result = run(tape(mutated(meant, names, seed).frames()))
    check_meaning(meant, result)


@given(MEANT, st.sets(st.sampled_from(sorted(MUTATORS))), SEEDS, st.sampled_from(["live", "held"]))
@EXAMPLES
def test_every_cut_is_reported_and_reads_do_not_matter(meant: Meant, names: set[str], seed: int, tools: str) -> None:
    frames = mutated(meant, names, seed).frames()
    cut = frames[: Random(seed).randrange(len(frames) + 1)]  # noqa: S311 - not for secrets
    result = run(tape(cut, tools=tools))
    client = read(result)
    assert bool(client.errors) == (result.ended.ending != "completed")
    assert emit(tape(cut, tools=tools, reads=1)) == result.out


@given(MEANT, st.sets(st.sampled_from(sorted(MUTATORS)), max_size=4), SEEDS, st.integers(1, 6))
@EXAMPLES
def test_junk_comes_out_canonical(meant: Meant, names: set[str], seed: int, count: int) -> None:
    stream = mutated(meant, names, seed)
    junk(stream, count)
    frames = stream.frames()
    for made in (
        tape(frames),
        tape(frames, tools="held"),
        tape(frames, on_partial="warn"),
        tape(frames, think=True, cumulative=True),
    ):
        result = run(made)
        client = Client()
        for frame in result.sent:
            client.read(frame)
