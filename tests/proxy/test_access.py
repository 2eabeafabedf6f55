"""Access rules and routes as tables: each refusal, what passes, and where it goes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.proxy.config.model import Config, Key, Route, Secret, Target
from wiretape.proxy.config.urls import Dialect, is_plain, place, request_target
from wiretape.proxy.http1 import Headers as HeadersOf
from wiretape.proxy.relay.http_responses import Answer, refused
from wiretape.proxy.security.access import OPEN_PATHS, Keys, Refusal, admit

Headers = list[tuple[bytes, bytes]]

ROUTES = {name: Route(name=name, targets=(Target(name="a", url="https://a.test/v1"),)) for name in ("", "azure")}
CONFIG = Config(data=Path("data"), routes=ROUTES, hosts=("proxy.test",), origins=("app://obsidian.md",))
EVERYWHERE = Config(data=Path("data"), routes=ROUTES, host="0.0.0.0")  # noqa: S104 - nothing listens here
NAMED = Config(data=Path("data"), routes=ROUTES, host="192.168.1.5")

VALUE = "own-0123456789abcdef0123456789abcdef"
FREE = Keys((), b"salt")
LOCKED = Keys((Key("a", Secret(VALUE)),), b"salt")
OWN: Headers = [(b"authorization", b"Bearer " + VALUE.encode())]

HOST = (b"host", b"localhost:8787")


def scope(
    method: str = "GET", path: bytes = b"/v1/models", query: bytes = b"", http_version: str = "1.1"
) -> dict[str, Any]:
    return {"method": method, "raw_path": path, "query_string": query, "http_version": http_version}


def asked(
    *headers: tuple[bytes, bytes],
    config: Config = CONFIG,
    keys: Keys = FREE,
    method: str = "POST",
    path: bytes = b"/v1/chat/completions",
    query: bytes = b"",
) -> Answer | None:
    given = list(headers)
    if not any(name.lower() == b"host" for name, _ in given):
        given.insert(0, HOST)
    return answered(admit(config, keys, scope(method, path, query), HeadersOf(given)))


def answered(admitted: object) -> Answer | None:
    return refused(admitted) if isinstance(admitted, Refusal) else None


def status_of(answer: Answer | None) -> int:
    """Return the status of a refusal, or 200 for a request that passes."""
    if answer is None:
        return 200
    names = [name for name, _ in answer.headers]
    assert not [name for name in names if name.startswith(b"access-control")]
    assert json.loads(answer.body)["error"]["code"]
    return answer.status


HOSTS: list[tuple[str, Config, bytes, int]] = [
    ("this machine", CONFIG, b"localhost", 200),
    ("in any case", CONFIG, b"LocalHost:8787", 200),
    ("rooted", CONFIG, b"localhost.:8787", 200),
    ("its address", CONFIG, b"127.0.0.1:8787", 200),
    ("a configured name", CONFIG, b"proxy.test", 200),
    ("another name (rebinding)", CONFIG, b"evil.test:8787", 421),
    ("a name that begins alike", CONFIG, b"localhost.evil.test", 421),
    ("a name that ends alike", CONFIG, b"evil-proxy.test", 421),
    ("another address", CONFIG, b"127.0.0.2", 421),
    ("an address of this machine that is not bound", CONFIG, b"192.168.1.5", 421),
    ("a user before it", CONFIG, b"localhost@evil.test", 421),
    ("a path after it", CONFIG, b"localhost/admin?x", 421),
    ("an empty one", CONFIG, b"", 421),
    ("bytes", CONFIG, b"\xff", 421),
    ("the bound address", NAMED, b"192.168.1.5:8787", 200),
    ("bound everywhere: an address", EVERYWHERE, b"192.168.1.5:8787", 200),
    ("bound everywhere: IPv6", EVERYWHERE, b"[fe80::1]:8787", 200),
    ("bound everywhere: a name", EVERYWHERE, b"evil.test", 421),
    ("bound everywhere: a short number", EVERYWHERE, b"1.2.3", 421),
]


@pytest.mark.parametrize(("config", "host", "status"), [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
@pytest.mark.parametrize("path", [b"/v1/models", *OPEN_PATHS])
def test_host_must_be_one_of_the_servers_names(config: Config, host: bytes, status: int, path: bytes) -> None:
    answer = asked((b"Host", host), config=config, path=path)
    assert status_of(answer) == status
    assert answer is None or b"WIRETAPE_HOSTS" in answer.body


def test_request_has_exactly_one_host() -> None:
    for version, status in (("1.1", 400), ("1.0", 200)):
        admitted = admit(CONFIG, FREE, scope(http_version=version), HeadersOf())
        assert status_of(answered(admitted)) == status
    assert status_of(asked(HOST, HOST)) == 400


ORIGINS: list[tuple[str, Headers, int]] = [
    ("no page", [], 200),
    ("our own page", [(b"origin", b"http://localhost:8787")], 200),
    ("a configured application", [(b"origin", b"app://obsidian.md"), (b"sec-fetch-site", b"cross-site")], 200),
    ("another page", [(b"origin", b"https://evil.test")], 403),
    ("another port of this machine", [(b"origin", b"http://localhost:3000")], 403),
    ("a page without an origin", [(b"origin", b"null")], 403),
    ("an empty one", [(b"origin", b"")], 403),
    ("two", [(b"origin", b"http://localhost:8787"), (b"origin", b"http://localhost:8787")], 403),
    ("an image on another page", [(b"sec-fetch-site", b"cross-site")], 403),
    ("an image on our page", [(b"sec-fetch-site", b"same-origin")], 200),
    ("typed into a browser", [(b"sec-fetch-site", b"none")], 200),
    ("the SDK of Node", [(b"sec-fetch-mode", b"cors")], 200),
]


@pytest.mark.parametrize(("headers", "status"), [row[1:] for row in ORIGINS], ids=[row[0] for row in ORIGINS])
@pytest.mark.parametrize("keys", [FREE, LOCKED], ids=["free", "locked"])
def test_foreign_pages_are_refused(headers: Headers, status: int, keys: Keys) -> None:
    assert status_of(asked(*headers, *OWN, keys=keys)) == status


@pytest.mark.parametrize("name", [b"Authorization", b"x-api-key", b"content-length", b"transfer-encoding"])
def test_repeated_unique_headers_are_refused(name: bytes) -> None:
    assert status_of(asked((name, b"1"))) == 200
    assert status_of(asked((name, b"1"), (name.lower(), b"1"))) == 400


@pytest.mark.parametrize("query", [b"a b", b"a\r\nb", b"a#b", b"\xff", b"\x00"])
def test_malformed_queries_are_refused(query: bytes) -> None:
    assert status_of(asked(query=query)) == 400


def test_allowed_origin_gets_neither_preflight_nor_cors() -> None:
    """As docs/reference/configuration.md promises."""
    page = (b"origin", b"app://obsidian.md")
    assert asked(page) is None
    assert status_of(asked(page, (b"access-control-request-method", b"POST"), method="OPTIONS")) == 405


KEYED: list[tuple[str, Headers, bytes, int]] = [
    ("ours", OWN, b"/v1/models", 200),
    ("ours, under another name", [(b"x-api-key", VALUE.encode())], b"/azure/v1/models", 200),
    ("ours, for our own pages", OWN, b"/wiretape/streams", 200),
    ("none", [], b"/v1/models", 401),
    ("none, for our own pages", [], b"/wiretape/streams", 401),
    ("a wrong one", [(b"authorization", b"Bearer x")], b"/v1/models", 401),
    ("none, for an unknown route", [], b"/other/v1/models", 401),
    ("none, for an open path", [], b"/wiretape/healthz", 200),
    ("none, for the other open path", [], b"/wiretape/readyz", 200),
    ("none, for an encoded open path", [], b"/wiretape/%68ealthz", 401),
    ("none, after an open path", [], b"/wiretape/healthz/../streams", 401),
    ("none, with a trailing slash", [], b"/wiretape/healthz/", 401),
]


@pytest.mark.parametrize(("headers", "path", "status"), [row[1:] for row in KEYED], ids=[row[0] for row in KEYED])
def test_raw_path_decides_whether_a_key_is_needed(headers: Headers, path: bytes, status: int) -> None:
    answer = asked(*headers, keys=LOCKED, method="GET", path=path)
    assert status_of(answer) == status
    if answer is not None:
        assert (b"www-authenticate", b"Bearer") in answer.headers


@pytest.mark.parametrize("query", [b"key=x", b"a=1&API-KEY=x", b"api_key", b"%6bey=x", b"a;access_token=x", b"token=x"])
@pytest.mark.parametrize("keys", [FREE, LOCKED], ids=["free", "locked"])
def test_key_in_a_url_is_refused(query: bytes, keys: Keys) -> None:
    answer = asked(*OWN, keys=keys, query=query)
    assert status_of(answer) == 400
    assert status_of(asked(*OWN, keys=keys, query=b"api-version=1&max_tokens=5&page_token=x")) == 200


def route(name: str) -> Route:
    return Route(name=name, targets=(Target(name="a", url="https://a.test/v1"),))


ROUTED = Config(data=Path("data"), routes={name: route(name) for name in ("", "azure", "a-b_1")})
BARE = Config(data=Path("data"), routes={"azure": route("azure")})

PLACES: list[tuple[str, bytes, str | None, Dialect, bytes]] = [
    ("chat on the default route", b"/v1/chat/completions", "", "chat", b"/chat/completions"),
    ("chat on a named route", b"/azure/v1/chat/completions", "azure", "chat", b"/chat/completions"),
    ("a name with all its letters", b"/a-b_1/v1/models", "a-b_1", "", b"/models"),
    ("a path of no dialect", b"/v1/models", "", "", b"/models"),
    ("the prefix alone", b"/v1", "", "", b""),
    ("a dialect by the path's end", b"/v1/threads/chat/completions", "", "chat", b"/threads/chat/completions"),
    ("a path after the dialect's ending", b"/v1/chat/completions/abc", "", "", b"/chat/completions/abc"),
    ("an encoded slash", b"/v1/chat%2Fcompletions", "", "chat", b"/chat%2Fcompletions"),
    ("a slash at the end", b"/v1/chat/completions/", "", "chat", b"/chat/completions/"),
    ("two slashes in the dialect", b"/v1//chat//completions", "", "chat", b"//chat//completions"),
    ("encoded letters", b"/v1/chat/completion%73", "", "chat", b"/chat/completion%73"),
    ("letters encoded twice", b"/v1/chat/completion%2573", "", "chat", b"/chat/completion%2573"),
    ("another case of the dialect", b"/v1/Chat/COMPLETIONS", "", "chat", b"/Chat/COMPLETIONS"),
    ("parameters of a segment", b"/v1/chat;a=b/completions;c", "", "chat", b"/chat;a=b/completions;c"),
    ("a backslash", b"/v1/chat\\completions", "", "chat", b"/chat\\completions"),
    ("a broken escape stays", b"/v1/%zz", "", "", b"/%zz"),
    ("odd characters stay", b'/v1/a|b{c}"d^`[e]', "", "", b'/a|b{c}"d^`[e]'),
    ("two slashes stay", b"/v1//models", "", "", b"//models"),
    ("dots inside a segment stay", b"/v1/gpt-4..5/...", "", "", b"/gpt-4..5/..."),
    ("a route of that name twice", b"/azure/v1/v1/models", "azure", "", b"/v1/models"),
    ("a route that is not configured", b"/other/v1/models", None, "", b""),
    ("another version", b"/v2/models", None, "", b""),
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
    found = place(ROUTED, raw)
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
    found = place(ROUTED, b"/azure/v1/" + path)
    assert (found is None) == (not is_plain(b"/" + path))
    if found is not None:
        expected = b"/v1/" + path + (b"?" + query if query else b"")
        assert request_target(found.route.targets[0], found.tail, query) == expected
