"""The scenarios. Each is a model's name, the one thing that every client lets its user choose."""

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["KEY", "SCENARIOS", "Scenario", "question"]

KEY: Final = "key-of-this-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One question to one model."""

    name: str
    says: str
    prompt: str = "How is the weather?"
    tool: bool = False
    usage: bool = False
    #: Whether it stays like this, however often one asks.
    stays: bool = False
    #: How often the client itself may ask again.
    retries: int = 0
    key: str = KEY

    def question(self, base_url: str, model: str, mode: str) -> dict[str, Any]:
        """Return the driver's instructions."""
        asked = {"tool": self.tool, "usage": self.usage, "retries": self.retries, "mode": mode, "turns": 2}
        return question(base_url, self.key, model, self.prompt, **asked)


def question(base_url: str, key: str, model: str, prompt: str, **more: Any) -> dict[str, Any]:
    """Return instructions for a driver (drivers/lines.py); by default it retries as the client does by itself."""
    asked: dict[str, Any] = {"base_url": base_url, "key": key, "model": model, "prompt": prompt}
    asked |= {"tool": False, "usage": False, "retries": None, "mode": "", "turns": 8, "timeout": 30}
    return asked | {"record": "", "stop": ""} | more


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="text", says="an answer in text"),
        Scenario(name="tool", says="a call, its result, and the answer to that", tool=True),
        Scenario(name="usage", says="an answer in text, and the token counts asked for", usage=True),
        Scenario(name="refused", says="an HTTP error: 404, 400 or 401", key="wrong"),
        Scenario(name="limited", says="HTTP 429 with a Retry-After longer than anybody waits", stays=True),
        Scenario(
            name="recovers", says="HTTP 429 once, Retry-After 1 s, then an answer; the client may ask twice", retries=1
        ),
        Scenario(name="cut", says="the bytes end in the middle of a text"),
        Scenario(name="cut-tool", says="the bytes end in the middle of a call", tool=True),
        Scenario(name="empty", says="status 200, and not one byte of an answer", prompt="overlong", stays=True),
    )
}
