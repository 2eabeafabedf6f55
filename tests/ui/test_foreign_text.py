"""Text of models, clients and upstreams is shown and never run, in every field that can carry it (check 4)."""

import json
from functools import partial
from typing import Any, Final

import pytest

from wiretape.replay.playback.script import EVENT_STREAM, Script, Step, json_answer

from .browser import Tab
from .stage import Stage, call, chunk

_RUN: Final = "hacked.push(1)"
PAYLOADS: Final = (
    f"<script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<body onload={_RUN}>",
    f"<iframe src=javascript:{_RUN}></iframe>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<a href=javascript:{_RUN}>click</a>",
    f"[click](javascript:{_RUN})",
    f"![x](http://127.0.0.1:9/x.png#{_RUN})",
    f"<math><mi xlink:href=javascript:{_RUN}>",
    f"<details open ontoggle={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<object data=javascript:{_RUN}></object>",
    f"<embed src=javascript:{_RUN}>",
    f"<form action=javascript:{_RUN}><button>go</button></form>",
    f"<link rel=stylesheet href=javascript:{_RUN}>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_RUN}'>",
    "<base href=http://127.0.0.1:9/>",
    f"<style>@import 'javascript:{_RUN}';</style>",
    f"<p style=background:url(javascript:{_RUN})>",
    f"<template><script>{_RUN}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"--><script>{_RUN}</script><!--",
    f"]]><script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</textarea><script>{_RUN}</script>",
    f"'\"><img src=x onerror={_RUN}>",
    f'"onmouseover={_RUN} x="',
    f"';{_RUN};//",
    f"${{{_RUN}}}",
    f"{{{{constructor.constructor('{_RUN}')()}}}}",
    f"__proto__[x]={_RUN}",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"\\u003cscript\\u003e{_RUN}\\u003c/script\\u003e",
    f"<marquee onstart={_RUN}>",
    f"\u202e<script>{_RUN}</script>\u202c \u200b\u2066\U000e0041",
    f"\x1b[31m\x1b]8;;javascript:{_RUN}\x07link\x1b]8;;\x07\x00",
)
#: What the page is made of.
ELEMENTS: Final = frozenset(
    [
        "A",
        "B",
        "BODY",
        "BUTTON",
        "CANVAS",
        "CODE",
        "DATA",
        "DATALIST",
        "DD",
        "DETAILS",
        "DIALOG",
        "DIV",
        "DL",
        "DT",
        "FORM",
        "H1",
        "H2",
        "H3",
        "HEAD",
        "HEADER",
        "HTML",
        "INPUT",
        "KBD",
        "LABEL",
        "LI",
        "LINK",
        "MAIN",
        "MARK",
        "META",
        "NAV",
        "NOSCRIPT",
        "OL",
        "OPTION",
        "P",
        "PRE",
        "SCRIPT",
        "SECTION",
        "SELECT",
        "SMALL",
        "SPAN",
        "STRONG",
        "SUMMARY",
        "TABLE",
        "TBODY",
        "TD",
        "TH",
        "THEAD",
        "TIME",
        "TITLE",
        "TR",
        "UL",
        "circle",
        "path",
        "rect",
        "svg",
    ]
)


def answer(payload: str) -> Script:
    """Return an answer with the payload in every member that a provider can fill."""
    tool = call(payload, payload, json.dumps({"path": payload}), size=60)
    frames = [
        chunk({"role": payload, "content": payload}, model=payload, system_fingerprint=payload),
        chunk({"reasoning_content": payload}),
        chunk({"refusal": payload}),
        *tool,
        b"event: %b\ndata: %b\n\n" % (b"odd", json.dumps({"odd": payload}).encode()),
        chunk({}, payload),
        chunk({}, usage={"prompt_tokens": payload, payload: payload}),
        b"data: %b\n\n" % json.dumps({"error": {"message": payload, "code": payload, "type": payload}}).encode(),
    ]
    frames = [frame.replace(b'"chatcmpl-9hQ2"', json.dumps(payload).encode()) for frame in frames]
    header = payload.encode("ascii", "ignore").translate(None, b"\x00\x07\x1b\r\n")
    return Script(headers=[*EVENT_STREAM, (b"X-Request-Id", header)], steps=[Step(0, frame) for frame in frames])


def asked(on: Stage, payload: str) -> list[str]:
    """Play the payload as an answer, and as an error, to a request that holds it too."""
    tools = [{"type": "function", "function": {"name": payload, "description": payload, "parameters": {}}}]
    on.upstream.scripts[payload] = lambda: answer(payload)
    ask = partial(on.ask, payload, [{"role": "user", "content": payload}], tools=tools, metadata={payload: payload})
    streams = [ask()]
    on.upstream.scripts[payload] = lambda: json_answer(
        json.dumps({"error": {"message": payload, "code": payload}}).encode(), 400
    )
    return [*streams, ask()]


def look_everywhere(tab: Tab, stream: str) -> None:
    page = tab.open(f"s/{stream}")
    tab.settle()
    for name in ("Lanes", "Gaps", "Repairs", "Request", "Response", "Answer"):
        page.get_by_role("tab", name=name).click()
        seen(page)
    for view in ("upstream", "client", "both", "events", "raw"):
        page.goto(f"{tab.on.ui}s/{stream}?view={view}")
        page.wait_for_selector("#records .rows [role=row]")
        for _ in range(page.locator("#records .rows [role=row]").count()):
            page.keyboard.press("j")
        seen(page)
    for place in (f"c/{stream}", f"diff/{stream}/{stream}", f"r/{stream}"):
        tab.open(place)
        seen(page)


def seen(page: Any) -> None:
    tags = page.evaluate("() => [...new Set([...document.querySelectorAll('*')].map((each) => each.tagName))]")
    assert set(tags) <= ELEMENTS, set(tags) - ELEMENTS
    links = page.evaluate(
        "() => [...document.querySelectorAll('[href], [src]')].map(({ attributes: at }) => (at.href ?? at.src).value)"
    )
    assert all(each.startswith("/wiretape/ui/") for each in links)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] * (n % 13 > 0)) for n in range(len(PAYLOADS))]
)
def test_nothing_of_a_payload_runs(tab: Tab, on: Stage, number: int) -> None:
    streams = asked(on, PAYLOADS[number])
    for stream in streams[: 2 if number % 10 == 0 else 1]:
        look_everywhere(tab, stream)
    page = tab.open("?q=ending:upstream_error")
    seen(page)
    tab.open("now")


def test_controls_are_visible(tab: Tab, on: Stage) -> None:
    page = tab.open(f"s/{asked(on, PAYLOADS[-2])[0]}")
    text = page.locator(".answer.text pre").inner_text()
    assert text.startswith("⟨U+202E⟩<script>")
    assert "⟨U+200B⟩⟨U+2066⟩⟨U+E0041⟩" in text
    page = tab.open(f"s/{asked(on, PAYLOADS[-1])[0]}")
    assert page.locator(".answer.text pre").inner_text().startswith("␛[31m␛]8;;javascript")
