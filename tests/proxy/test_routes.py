"""Raw paths to routes and upstream targets, as tables; nothing is decoded and nothing is rewritten."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.config.urls import Dialect, is_plain, place, request_target


def route(name: str) -> Route:
    return Route(name=name, targets=(Target(name="a", url="https://a.test/v1"),))


CONFIG = Config(data=Path("data"), routes={name: route(name) for name in ("", "azure", "a-b_1")})
BARE = Config(data=Path("data"), routes={"azure": route("azure")})

PLACES: list[tuple[str, bytes, str | None, Dialect, bytes]] = [
    ("chat on the default route", b"/v1/chat/completions", "", "chat", b"/chat/completions"),
    ("chat on a named route", b"/azure/v1/chat/completions", "azure", "chat", b"/chat/completions"),
    ("a name with all its letters", b"/a-b_1/v1/models", "a-b_1", "", b"/models"),
    ("a path of no dialect", b"/v1/models", "", "", b"/models"),
    ("the prefix alone", b"/v1", "", "", b""),
    ("the prefix and a slash", b"/v1/", "", "", b"/"),
    ("a dialect by the path's end", b"/v1/threads/chat/completions", "", "chat", b"/threads/chat/completions"),
    ("a path after the dialect's ending", b"/v1/chat/completions/abc", "", "", b"/chat/completions/abc"),
    ("a slash after it", b"/v1/chat/completions/", "", "", b"/chat/completions/"),
    ("an encoded slash", b"/v1/chat%2Fcompletions", "", "", b"/chat%2Fcompletions"),
    ("an encoded letter", b"/v1/ch%61t/completions", "", "", b"/ch%61t/completions"),
    ("a broken escape stays", b"/v1/%zz", "", "", b"/%zz"),
    ("odd characters stay", b'/v1/a|b{c}"d^`[e]', "", "", b'/a|b{c}"d^`[e]'),
    ("two slashes stay", b"/v1//models", "", "", b"//models"),
    ("dots inside a segment stay", b"/v1/gpt-4..5/...", "", "", b"/gpt-4..5/..."),
    ("a route of that name twice", b"/azure/v1/v1/models", "azure", "", b"/v1/models"),
    ("a route that is not configured", b"/other/v1/models", None, "", b""),
    ("another version", b"/v2/models", None, "", b""),
    ("a longer word", b"/v10/models", None, "", b""),
    ("the root", b"/", None, "", b""),
    ("nothing", b"", None, "", b""),
    ("an encoded prefix", b"/%761/models", None, "", b""),
    ("an encoded route", b"/%61zure/v1/models", None, "", b""),
    ("an encoded slash after the prefix", b"/v1%2Fmodels", None, "", b""),
    ("another case", b"/V1/models", None, "", b""),
    ("a whole URL", b"http://evil.test/v1/models", None, "", b""),
    ("two slashes before", b"//azure/v1/models", None, "", b""),
    ("segments that go up", b"/v1/../v1/models", None, "", b""),
    ("up at the end", b"/v1/models/..", None, "", b""),
    ("here", b"/v1/./models", None, "", b""),
    ("up, encoded", b"/v1/%2e%2E/admin", None, "", b""),
    ("up, half encoded", b"/v1/.%2e/admin", None, "", b""),
    ("up after an encoded slash", b"/v1/x%2F..%2fadmin", None, "", b""),
    ("up after a backslash", b"/v1/x\\..\\admin", None, "", b""),
    ("up after an encoded backslash", b"/v1/x%5c..%5Cadmin", None, "", b""),
    ("up with parameters", b"/v1/..;a=b/admin", None, "", b""),
    ("a fragment", b"/v1/models#a", None, "", b""),
    ("a query in the path", b"/v1/models?a", None, "", b""),
    ("a space", b"/v1/a b", None, "", b""),
    ("a line end", b"/v1/a\r\nb", None, "", b""),
    ("a line end at the end", b"/v1/models\n", None, "", b""),
    ("what is not ASCII", "/v1/é".encode(), None, "", b""),
]


@pytest.mark.parametrize(
    ("raw", "name", "dialect", "tail"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES]
)
def test_raw_path_selects_route_and_dialect(raw: bytes, name: str | None, dialect: Dialect, tail: bytes) -> None:
    found = place(CONFIG, raw)
    if name is None:
        assert found is None
    else:
        assert found is not None
        assert (found.route.name, found.dialect, found.tail) == (name, dialect, tail)


def test_v1_is_unknown_without_a_default_route() -> None:
    assert place(BARE, b"/v1/models") is None
    assert place(BARE, b"/azure/v1/models") is not None


TARGETS: list[tuple[str, str, bytes, bytes, bytes]] = [
    ("the usual form", "https://a.test/v1", b"/models", b"", b"/v1/models"),
    ("a slash at its end", "https://a.test/v1/", b"/models", b"", b"/v1/models"),
    ("no path", "https://a.test", b"/models", b"", b"/models"),
    ("nothing at all", "https://a.test", b"", b"", b"/"),
    ("the prefix alone", "https://a.test/v1", b"", b"", b"/v1"),
    ("another prefix", "https://a.test/api/v1", b"/models", b"a=1", b"/api/v1/models?a=1"),
    (
        "a query of its own",
        "https://a.test/openai/deployments/x?api-version=2024-10-21",
        b"/chat/completions",
        b"",
        b"/openai/deployments/x/chat/completions?api-version=2024-10-21",
    ),
    ("two queries", "https://a.test/v1?x=%2F", b"/a", b"y=%zz&y", b"/v1/a?x=%2F&y=%zz&y"),
    ("a query without a path", "https://a.test?x=1", b"/a", b"", b"/a?x=1"),
    ("a mark without a query", "https://a.test/v1?", b"/a", b"", b"/v1/a"),
    ("an escape in the base", "https://a.test/v%31/%7Bx%7D", b"/a", b"", b"/v%31/%7Bx%7D/a"),
    ("what httpx would rewrite", "https://a.test/v1", b'/{"a"}/<b>`c', b"q='\"", b'/v1/{"a"}/<b>`c?q=\'"'),
]


@pytest.mark.parametrize(
    ("url", "tail", "query", "expected"), [row[1:] for row in TARGETS], ids=[row[0] for row in TARGETS]
)
def test_request_target_is_byte_exact(url: str, tail: bytes, query: bytes, expected: bytes) -> None:
    target = Target(name="a", url=url)
    assert request_target(target, tail, query) == expected


VISIBLE = st.sampled_from([bytes([byte]) for byte in range(0x21, 0x7F) if byte not in b"#?"])


@given(st.lists(VISIBLE).map(b"".join), st.lists(VISIBLE).map(b"".join))
def test_every_accepted_path_reaches_its_upstream_unchanged(path: bytes, query: bytes) -> None:
    found = place(CONFIG, b"/azure/v1/" + path)
    assert (found is None) == (not is_plain(b"/" + path))
    if found is not None:
        expected = b"/v1/" + path + (b"?" + query if query else b"")
        assert request_target(found.route.targets[0], found.tail, query) == expected
