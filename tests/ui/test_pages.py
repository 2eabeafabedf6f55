"""What the pages show, and that it is what the command line prints (checks 7, 8, 9, 11 of the inspector)."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .browser import Tab, number_of
from .stage import WIRETAPE, Stage


def shown_duration(us: int) -> str:
    """Return microseconds as the page writes them."""
    if us < 1_000:
        return f"{us} µs"
    if us < 999_500:
        return f"{us / 1_000:.{1 if us < 9_950 else 0}f} ms"
    return f"{us / 1_000_000:.{2 if us < 9_995_000 else 1}f} s"


@pytest.mark.parametrize("name", ["cut", "text", "read", "answer", "reset", "busy"])
def test_every_number_equals_show(tab: Tab, on: Stage, ids: dict[str, str], name: str) -> None:
    page = tab.open(f"s/{ids[name]}?tab=repairs")
    tab.settle()
    shown = on.show(ids[name])
    usage = shown["usage"] or {}
    expected = {
        **{each: shown["timing"][each] for each in ("first_content_us", "longest_silence_us", "duration_us")},
        "attempts": len(shown["attempts"]),
        "records": shown["records"],
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "repairs": sum(shown["repairs"].values()),
        **{f"repair {each}": times for each, times in shown["repairs"].items()},
    }
    found: dict[str, int | None] = {}  # the repairs come after the first paint
    tries = 50
    while found != expected and (tries := tries - 1):
        page.wait_for_timeout(100)
        found = {each: number_of(page, each) for each in expected}
    assert found == expected
    texts = {
        each: page.locator(f"[data-name='{each}']").first.inner_text() for each in expected if each.endswith("_us")
    }
    assert texts == {each: shown_duration(expected[each]) if expected[each] is not None else "\u2013" for each in texts}
    page.get_by_role("tab", name="Lanes").click()
    sizes = page.locator("#result [data-name=arguments_chars]")
    assert [int(each.get_attribute("value")) for each in sizes.all()] == [
        each["arguments_chars"] for each in shown["tools"]
    ]
    assert [each["state"] for each in shown["tools"]] == [
        row.locator("td").nth(1).inner_text()
        for row in page.locator("#result tr").filter(has=page.locator("[data-name=arguments_chars]")).all()
    ]


def test_list_shows_what_ls_prints(tab: Tab, on: Stage, ids: dict[str, str]) -> None:
    page = tab.open()
    page.wait_for_selector(f"#streams [role=row][aria-rowindex='{len(ids) + 1}']")
    rows = {each["id"]: each for each in on.read("streams")["streams"]}
    for row, cells in zip(rows.values(), page.locator("#streams .rows [role=row]").all(), strict=True):
        assert cells.locator(".ending").inner_text() == row["ending"]
        values = [each.get_attribute("value") for each in cells.locator("data").all()]
        known = [row[each] for each in ("input_tokens", "output_tokens", "first_content_us", "duration_us", "repairs")]
        assert values == [str(each) for each in known if each is not None]
    page.locator("#streams .rows [role=row]").first.click()
    page.wait_for_selector("#records .rows [role=row]")


def test_cut_call_is_found_copied_and_compared_by_keyboard(tab: Tab, ids: dict[str, str], tmp_path: Path) -> None:
    page = tab.open()
    keys = page.keyboard
    keys.press("/")
    keys.type("state:dropped ")
    page.wait_for_selector("#streams[aria-rowcount='2']")
    assert "q=state" in page.url
    keys.press("Enter")
    keys.press("j")
    keys.press("Enter")
    page.wait_for_selector("h1:has-text('inside write_file')")
    assert page.url.endswith(f"/s/{ids['cut']}")
    for key, kind in (("e", "end"), ("[", "frame"), ("t", "end")):
        keys.press(key)
        assert page.locator("#records [aria-selected=true] .kind").inner_text() == kind
    keys.press("c")
    page.get_by_role("button", name="pytest and its tape").focus()
    keys.press("Enter")
    page.wait_for_function("() => document.getElementById('announcements').textContent === 'Copied.'")
    assert "def test_write_file_truncated(tape)" in page.evaluate("() => navigator.clipboard.readText()")
    keys.press("d")
    keys.press("Escape")
    page.wait_for_selector("#streams")
    keys.press("/")
    keys.press("Control+a")
    keys.type("model:gpt-4o-mini ")
    page.wait_for_selector("#streams[aria-rowcount='3']")
    keys.press("Enter")
    keys.press("j")
    keys.press("d")
    page.wait_for_selector(".difference")
    keys.press("n")
    assert page.locator(".current").count() == 1
    assert f"/diff/{ids['cut']}/" in page.url
    page.go_back()
    page.wait_for_selector("#streams")


def test_single_letters_can_be_switched_off(tab: Tab, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}")
    page.keyboard.press("?")
    page.get_by_label("single letters are commands").uncheck()
    page.keyboard.press("Escape")
    before = page.locator("#view").get_attribute("class")
    page.keyboard.press("v")
    assert page.locator("#view").get_attribute("class") == before
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("single letters are commands").check()
    page.keyboard.press("Escape")
    page.keyboard.press("v")
    page.wait_for_selector("#view.events")


def copied(tab: Tab, title: str) -> str:
    tab.page.get_by_role("button", name="Copy", exact=True).first.click()
    tab.page.get_by_role("button", name=title).click()
    tab.page.wait_for_function("() => document.getElementById('announcements').textContent === 'Copied.'")
    text: str = tab.page.evaluate("() => navigator.clipboard.readText()")
    return text


@pytest.mark.parametrize("name", ["cut", "read"])
def test_copied_pytest_passes_with_its_seal_command(
    tab: Tab, on: Stage, ids: dict[str, str], name: str, tmp_path: Path
) -> None:
    tab.open(f"s/{ids[name]}")
    text = copied(tab, "pytest and its tape")
    (tmp_path / "test_copied.py").write_text(text)
    (tmp_path / "tapes").mkdir()
    environment = {**os.environ, "PATH": f"{WIRETAPE.parent}:{os.environ['PATH']}", "WIRETAPE_DATA": str(on.data)}
    seal = text.splitlines()[0].removeprefix("# ")
    subprocess.run(seal, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)  # noqa: S602 - the copied line
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ran.stdout, ran.stdout


def test_copied_curl_runs_against_a_replay(tab: Tab, on: Stage, ids: dict[str, str], tmp_path: Path) -> None:
    tab.open(f"s/{ids['text']}")
    replay, _, curl = copied(tab, "curl to a replay").partition(" &\n")
    environment = {**os.environ, "PATH": f"{WIRETAPE.parent}:{os.environ['PATH']}", "WIRETAPE_DATA": str(on.data)}
    command = [*replay.split(), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            base = next(
                found[1] for line in process.stdout if (found := re.search(r"http://(127\.0\.0\.1:\d+)/v1", line))
            )
            asked = curl.replace("127.0.0.1:8788", base)
            answer = subprocess.run(asked, shell=True, check=True, capture_output=True, text=True)  # noqa: S602 - the copied line
        finally:
            process.terminate()
    assert "decisions:" in answer.stdout
    assert "[DONE]" in answer.stdout


def test_record_and_its_views(tab: Tab, on: Stage, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}#n=8")
    tab.settle()
    page.wait_for_selector("#view mark")
    assert "~" in page.locator("#records [aria-selected=true] .diff").inner_text()
    page.locator("#view summary").first.click()
    assert page.locator("#view details p").first.inner_text().startswith("Add the role")
    page.get_by_role("tab", name="Raw").click()
    assert json.loads(page.locator("#view pre").inner_text())["n"] == 8
    page.get_by_role("tab", name="Request").click()
    assert json.loads(page.locator("#result pre").inner_text())["model"] == "gpt-4o"
    assert "view=raw" in page.url
    assert page.url.endswith("#n=8")


def test_range_filters_the_records(tab: Tab, on: Stage, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}#n=20-29")
    page.wait_for_selector("#records[aria-rowcount='11']")
    page.get_by_role("button", name="Show all").click()
    page.wait_for_selector(f"#records[aria-rowcount='{on.show(ids['cut'])['records'] + 1}']")
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_function("() => /n=\\d+-\\d+/.test(location.hash)")


def test_replay_moves_the_text_and_tells_where_it_is(tab: Tab, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}?at=0.700000")
    slider = page.get_by_role("slider", name="Time")
    text = page.locator(".answer.reasoning pre")
    assert text.inner_text().startswith("The user wants")
    assert len(text.inner_text()) < 60
    assert re.fullmatch(r"700 ms of 3\.\d+ s, record \d+, \d+ characters", slider.get_attribute("aria-valuetext"))
    slider.focus()
    before = slider.get_attribute("aria-valuetext")
    slider.press("ArrowRight")
    page.wait_for_function(
        "old => document.querySelector('input[type=range]').getAttribute('aria-valuetext') !== old", arg=before
    )
    page.get_by_role("button", name="16\u00d7").click()
    page.wait_for_selector(".answer.call:has-text('cut here')")
    page.wait_for_selector("button:has-text('Replay')")


def test_conversation_links_the_turns(tab: Tab, ids: dict[str, str]) -> None:
    page = tab.open(f"c/{ids['answer']}")
    assert page.locator("ol li").count() == 2
    assert "turn 2" in page.locator("ol li").first.locator("table").inner_text()


def test_empty_list_becomes_the_list_by_itself(empty: Tab) -> None:
    page = empty.open()
    page.wait_for_selector("text=Waiting for the first request")
    assert [each.inner_text().split()[0] for each in page.locator(".connect code").all()] == [
        "export",
        "export",
        "curl",
    ]
    empty.on.ask("gpt-4o-mini")
    page.wait_for_selector("#streams .badge.ok")
    assert page.locator("#streams .rows [role=row]").count() == 1


def test_pages_work_offline_once_loaded(tab: Tab, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}")
    tab.settle()
    tab.context.set_offline(True)
    for name in ("Lanes", "Gaps", "Repairs", "Request", "Response", "Answer"):
        page.locator("#result").evaluate("node => node.scrollTop")
        page.get_by_role("tab", name=name).click()
        assert page.locator("#result").inner_text()
    page.keyboard.press("e")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    tab.context.set_offline(False)


def test_token_stays_in_this_tab(tab: Tab, on: Stage, ids: dict[str, str]) -> None:
    page = tab.open(f"s/{ids['cut']}")
    tab.settle()
    assert "token" not in page.url
    kept = page.evaluate("() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
    assert kept == [[on.token], [], ""]
    assert all(on.token not in each.url and "referer" not in each.all_headers() for each in tab.requests)
    data = [each for each in tab.requests if "/wiretape/streams" in each.url]
    assert {each.all_headers().get("authorization") for each in data} == {f"Bearer {on.token}"}
    assert on.token not in (on.data.parent / f"{on.data.name}.log").read_text()


def test_wrong_token_is_refused(browser: Any, on: Stage, ids: dict[str, str]) -> None:
    wrong = Tab(browser, on, token="wiretape_operator_" + "0" * 40)
    page = wrong.open(ready="[role=alert]")
    assert "prints the address with the token" in page.locator("[role=alert]").inner_text()
    hidden = on.ask("gpt-4o-mini", headers={"Authorization": "Bearer sk-of-somebody"})
    none = Tab(browser, on, token="")
    none.open(f"s/{hidden}", ready="[role=alert]")
    none.open(f"s/{ids['text']}")
    for each in (wrong, none):
        each.clean()
        each.context.close()


def test_exported_page_shows_the_stream_without_a_server(
    browser: Any, on: Stage, ids: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "cut.html"
    command: list[str | Path] = [WIRETAPE, "export", ids["cut"], "--format", "html", "-o", file, "--data", on.data]
    subprocess.run(command, check=True, capture_output=True)
    context = browser.new_context(offline=True)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_selector("h1:has-text('inside write_file')")
    assert number_of(page, "records") == on.show(ids["cut"])["records"]
    page.keyboard.press("r")
    page.keyboard.press("v")
    page.wait_for_selector("#view.events")
    assert "view=events" in page.url
    page.get_by_role("tab", name="Request").click()
    assert "gpt-4o" in page.locator("#result pre").inner_text()
    assert wrong == []
    context.close()
