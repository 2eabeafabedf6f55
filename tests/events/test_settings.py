"""Settings and facts from records, junk included."""

from typing import Any

import pytest

from wiretape.events.core.settings import Facts, Settings


def test_every_setting_is_read() -> None:
    keys = {
        "profile": "transparent",
        "settings": {
            "on_partial": "both",
            "tools": "held",
            "tool_events": False,
            "reasoning": "as_is",
            "cumulative": True,
            "think": True,
            "hermes": True,
        },
    }
    settings = Settings.of(keys)
    assert (settings.profile, settings.on_partial, settings.tools) == ("transparent", "both", "held")
    assert (settings.tool_events, settings.reasoning, settings.cumulative) == (False, "as_is", True)
    assert (settings.think, settings.hermes, Settings().hermes) == (True, True, False)
    assert Settings.of(keys, "strict").profile == "strict"


@pytest.mark.parametrize("junk", [None, 5, [], {"a": 1}, "nonsense", True])
def test_junk_falls_back_to_the_default(junk: Any) -> None:
    words = dict.fromkeys(("on_partial", "tools", "reasoning"), junk)
    assert Settings.of({"profile": junk, "settings": words}) == Settings()
    assert Settings.of({"settings": junk}) == Settings()
    assert Settings.of({"settings": {"tool_events": None, "cumulative": 1, "hermes": 1}}) == Settings()


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        (Settings(tools="held"), True),
        (Settings(on_partial="warn"), True),
        (Settings(on_partial="both"), False),
    ],
)
def test_warn_always_holds_calls(settings: Settings, held: bool) -> None:
    assert settings.held is held


def test_facts_come_back_from_their_keys() -> None:
    facts = Facts(stream=False, usage=True, model="m", choices=2, tools=frozenset({"b", "a"}))
    assert facts.to_keys()["tools"] == ["a", "b"]
    assert Facts.of({"facts": facts.to_keys()}) == facts
    assert Facts.of({}) == Facts()


@pytest.mark.parametrize(
    "junk", [None, 5, [], "x", {"model": 5, "n": "2", "tools": [1, None], "usage": 1, "stream": 0}]
)
def test_junk_facts_are_the_default(junk: Any) -> None:
    assert Facts.of({"facts": junk}) == Facts()
