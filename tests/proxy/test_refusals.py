"""Refused requests in the log."""

from typing import Final

import trio
from trio.testing import MockClock

from tests.support.house import answer, house
from wiretape.proxy.config.model import Key, Secret

KEY: Final = "wt-" + "k" * 40
GUESS: Final = "sk-" + "g" * 40


async def test_refusals_are_one_line_per_reason_and_minute_without_secrets(autojump_clock: MockClock) -> None:
    config = {"keys": (Key("own", Secret(KEY)),)}
    async with house(answer(200), config=config) as home:
        for _ in range(3):
            await home.ask(b"{}", f"Authorization: Bearer {GUESS}", path="/v1/models", method="GET")
        await home.ask(b"{}", path=f"/v1/models?key={GUESS}", method="GET")
        await trio.sleep(61)
        await trio.sleep(61)
        lines = [fields for _, event, fields in home.log if event == "refused"]
        assert [(line["code"], line["count"]) for line in lines] == [
            ("invalid_api_key", 1),
            ("key_in_query", 1),
            ("invalid_api_key", 2),
        ]
        assert (lines[0]["status"], lines[0]["method"], lines[0]["path"]) == (401, "GET", "/v1/models")
        assert "WIRETAPE_KEY" in str(lines[0]["why"])
        assert GUESS not in str(lines)
