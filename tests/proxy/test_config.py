"""Configuration from flags, environment and file: values at their bounds, origins, errors in one line, the document."""

import json
import re
import secrets
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.docs import read
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.load import load
from wiretape.proxy.config.model import (
    ON_OFF,
    ROUTE,
    SERVER,
    TARGET,
    Config,
    ConfigError,
    Egress,
    Kind,
    Secret,
    Target,
    choice,
    count,
    names,
    path,
    seconds,
    size,
    text,
)
from wiretape.proxy.limits import KEY_CHARS_MIN, KEY_FILE_BYTES_MAX, MEMORY_MAX_BYTES_MIN

OPENAI = "https://api.openai.test/v1"
OWN = "own-0123456789abcdef0123456789abcdef"
KEY = "sk-0123456789abcdef"

Flags = dict[str, Any]


class Setup:
    """A working folder and an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": "/somebody", "OPENAI": KEY, "AZURE": "azure-" + KEY, "OWN": OWN, "SHORT": "x" * 31}

    def file(self, text: str, name: str = "wiretape.toml") -> "Setup":
        (self.folder / name).write_text(text, encoding="utf-8")
        return self

    def config(self, flags: Flags | None = None, /, **environ: str) -> Config:
        return load(flags or {}, self.environ | environ, self.folder).config

    def reading(self) -> Config:
        return load({}, self.environ, self.folder, serving=False).config

    def origins(self, flags: Flags | None = None, /, **environ: str) -> dict[str, str]:
        return dict(load(flags or {}, self.environ | environ, self.folder).origins)

    def refusal(self, flags: Flags | None = None, /, **environ: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(flags or {}, self.environ | environ, self.folder)
        message = str(caught.value)
        assert message.isprintable(), "more than one line"
        return message


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_flags_override_environment_overrides_file(setup: Setup) -> None:
    setup.file(f'upstream = "{OPENAI}"\nport = 1\nhost = "::1"\nkeep_days = 1\n')
    config = setup.config({"port": 3, "host": None}, WIRETAPE_PORT="2", WIRETAPE_HOST="localhost", WIRETAPE_DATA="")
    assert (config.port, config.host, config.keep.days) == (3, "localhost", 1)
    origins = setup.origins({"port": 3}, WIRETAPE_PORT="2", WIRETAPE_HOST="localhost", WIRETAPE_DATA="")
    names = ("port", "host", "keep_days", "data", "upstream", "profile")
    assert [origins[name] for name in names] == [
        "--port",
        "WIRETAPE_HOST",
        "wiretape.toml",
        "default",
        "wiretape.toml",
        "default",
    ]


EVERYTHING: dict[str, tuple[str, str, Callable[[Config], Any], Any]] = {
    # name: as TOML, as text, where, what
    "host": ('"localhost"', "localhost", lambda c: c.host, "localhost"),
    "port": ("9000", "9000", lambda c: c.port, 9000),
    "workers": ("2", "2", lambda c: c.workers, 2),
    "data": ('"/d"', "/d", lambda c: c.data, Path("/d")),
    "durability": ('"disk"', "disk", lambda c: c.durability, "disk"),
    "log_format": ('"text"', "text", lambda c: c.log_format, "text"),
    "metrics_models": (
        '["GPT-4o", "qwen3:8b"]',
        "gpt-4o, qwen3:8b",
        lambda c: c.metrics_models,
        ("gpt-4o", "qwen3:8b"),
    ),
    "otel_endpoint": ('"http://c:4318"', "http://c:4318", lambda c: c.otel_endpoint, "http://c:4318"),
    "otel_genai": ('"latest"', "latest", lambda c: c.otel_genai, "latest"),
    "otel_content": ("true", "on", lambda c: c.otel_content, True),
    "requests": ('"hash"', "hash", lambda c: c.requests, "hash"),
    "search": ("false", "off", lambda c: c.search, False),
    "on_log_failure": ('"serve"', "serve", lambda c: c.on_log_failure, "serve"),
    "keep_days": ('"unlimited"', "unlimited", lambda c: c.keep.days, None),
    "keep_bytes": ('"2 GiB"', "2GiB", lambda c: c.keep.bytes, 2 * 1024**3),
    "store": (
        '"postgresql://u@h/d"',
        "postgres://u@h,i:6/d?sslmode=require",
        lambda c: c.store and c.store[:8],
        "postgres",
    ),
    "instance": ('"node-1"', "node-1", lambda c: c.instance, "node-1"),
    "store_dead_s": ("5", "5", lambda c: c.store_dead_s, 5.0),
    "hosts": ('["A.test", "b.test"]', "a.test, B.test", lambda c: c.hosts, ("a.test", "b.test")),
    "origins": ('["app://x"]', "app://X", lambda c: c.origins, ("app://x",)),
    "cors_origins": ('["https://x.test"]', "https://X.test", lambda c: c.cors_origins, ("https://x.test",)),
    "streams_max": ("5", "5", lambda c: c.streams_max, 5),
    "runs_max": ("5", "5", lambda c: c.runs_max, 5),
    "runs_unwatched_s": ("5", "5", lambda c: c.runs_unwatched_s, 5.0),
    "runs_waiting_s": ("5", "5", lambda c: c.runs_waiting_s, 5.0),
    "runs_unread_s": ("5", "5", lambda c: c.runs_unread_s, 5.0),
    "memory_max_bytes": ('"1 GiB"', "1GiB", lambda c: c.memory_max_bytes, 1024**3),
    "body_bytes_max": ("1024", "1 KiB", lambda c: c.body_bytes_max, 1024),
    "shutdown_drain_s": ("0", "0", lambda c: c.drain_s, 0.0),
    "connect_timeout_s": ("1.5", "1.5", lambda c: c.upstream.connect_timeout_s, 1.5),
    "write_timeout_s": ("2", "2", lambda c: c.upstream.write_timeout_s, 2.0),
    "ca_file": ('"/ca.pem"', "/ca.pem", lambda c: c.upstream.ca_file, Path("/ca.pem")),
    "egress_proxy": (
        '"http://proxy.test:3128"',
        "http://proxy.test:3128/",
        lambda c: c.upstream.egress,
        Egress(host="proxy.test", port=3128),
    ),
    "profile": ('"transparent"', "transparent", lambda c: c.routes[""].settings.profile, "transparent"),
    "on_partial": ('"both"', "both", lambda c: c.routes[""].settings.on_partial, "both"),
    "tools": ('"held"', "held", lambda c: c.routes[""].settings.tools, "held"),
    "tool_events": ("false", "off", lambda c: c.routes[""].settings.tool_events, False),
    "reasoning": ('"as_is"', "as_is", lambda c: c.routes[""].settings.reasoning, "as_is"),
    "cumulative": ("true", "true", lambda c: c.routes[""].settings.cumulative, True),
    "think": ("true", "1", lambda c: c.routes[""].settings.think, True),
    "include_usage": ("true", "TRUE", lambda c: c.routes[""].include_usage, True),
    "attempts": ("1", "1", lambda c: c.routes[""].attempts, 1),
    "retry": ('"never"', "never", lambda c: c.routes[""].repeats, "never"),
    "first_byte_s": ("5", "5", lambda c: c.routes[""].first_byte_s, 5.0),
    "idle_s": ("5", "5", lambda c: c.routes[""].idle_s, 5.0),
    "keepalive_s": ("5", "5", lambda c: c.routes[""].keepalive_s, 5.0),
    "finish_grace_s": ("0", "0", lambda c: c.routes[""].finish_grace_s, 0.0),
    "on_client_gone": ('"keep"', "keep", lambda c: c.routes[""].on_client_gone, "keep"),
    "drain_s": ("5", "5", lambda c: c.routes[""].drain_s, 5.0),
    "keep_s": ("5", "5", lambda c: c.routes[""].keep_s, 5.0),
    "synthesise": ("false", "false", lambda c: c.routes[""].synthesise, False),
    "tape": ("false", "0", lambda c: c.routes[""].tape, False),
    "emoji": ("true", "on", lambda c: c.routes[""].settings.emoji, True),
    "history": ('"repair"', "repair", lambda c: c.routes[""].history, "repair"),
    "hermes": ("true", "on", lambda c: c.routes[""].hermes, True),
    "models": (
        '{ "claude-*" = "qwen3", "a" = "b c" }',
        "claude-*=qwen3, a = b c",
        lambda c: c.routes[""].models,
        (("claude-*", "qwen3"), ("a", "b c")),
    ),
    "system": ('"first"', "first", lambda c: c.routes[""].system, "first"),
    "max_tokens": ("5", "5", lambda c: c.routes[""].max_tokens, 5),
    "max_tokens_max": ("5", "5", lambda c: c.routes[""].max_tokens_max, 5),
    "cache_control": ("true", "on", lambda c: c.routes[""].cache_control, True),
    "speaks": ('"messages"', "messages", lambda c: c.routes[""].targets[0].speaks, "messages"),
    "runs": ('"relay"', "relay", lambda c: c.routes[""].runs, "relay"),
    "key_env": ('"OPENAI"', "OPENAI", lambda c: c.routes[""].targets[0].key, Secret(KEY)),
    "key_header": ('"x-api-key"', "x-api-key", lambda c: c.routes[""].targets[0].key_header, "x-api-key"),
    "trace": ("true", "on", lambda c: c.routes[""].targets[0].trace, True),
    "caller_key": ("false", "false", lambda c: c.routes[""].targets[0].caller_key, False),
}

#: The rest: they need another setting, or are used with the URL in each of these tests.
ELSEWHERE = {"egress_user", "egress_password_env", "key_file", "upstream", "allow_plain_http"}


def test_every_setting_has_a_row() -> None:
    assert {setting.name for setting in (*SERVER, *ROUTE, *TARGET)} == EVERYTHING.keys() | ELSEWHERE


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_setting_is_read_from_every_layer(setup: Setup, name: str) -> None:
    setting = next(setting for setting in (*SERVER, *ROUTE, *TARGET) if setting.name == name)
    toml, text, where, expected = EVERYTHING[name]
    flags: Flags = {"upstream": OPENAI}
    assert where(setup.config({**flags, name: text})) == expected
    assert where(setup.config(flags, **{setting.environment: text})) == expected if setting not in TARGET else True
    setup.file(f'upstream = "{OPENAI}"\n{name} = {toml}\n')
    assert where(setup.config()) == expected
    assert where(setup.config(**{setting.environment: text})) == expected
    loaded = load({setting.alias or name: text}, setup.environ, setup.folder)
    assert loaded.origins[name] == setting.flag
    (row,) = [row for row in loaded.rows if row.name == name]
    assert row.origin == setting.flag
    assert row.value == ("***" if name == "key_env" else row.value)


ROUTES = f"""
upstream = "{OPENAI}"
idle_s = 7
hermes = true
think = true

[routes.azure]
upstream = "https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21"
key_env = "AZURE"
idle_s = 8

[routes.local]
upstream = "http://127.0.0.1:11434/v1"
think = false
"""


def test_route_settings_override_the_top_of_the_file(setup: Setup) -> None:
    config = setup.file(ROUTES).config()
    assert list(config.routes) == ["", "azure", "local"]
    azure = config.routes["azure"]
    assert azure.targets == (
        Target(
            name="x.openai.azure.com/openai/deployments/d",
            url="https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            key=Secret("azure-" + KEY),
            key_header="api-key",
        ),
    )
    assert [route.idle_s for route in config.routes.values()] == [7, 8, 7]
    assert [route.settings.think for route in config.routes.values()] == [True, True, False]
    assert config.secrets == (Secret("azure-" + KEY),)


def test_flags_and_environment_apply_to_every_route_unless_about_one_upstream(setup: Setup) -> None:
    routes = setup.file(ROUTES).config({"cumulative": True}).routes.values()
    assert [(route.hermes, route.settings.cumulative) for route in routes] == [(True, True), *[(False, False)] * 2]
    config = setup.file(ROUTES).config({"idle_s": "9"}, WIRETAPE_ON_PARTIAL="warn")
    assert [route.idle_s for route in config.routes.values()] == [9, 9, 9]
    assert config.routes[""].settings == Settings(on_partial="warn", think=True)
    origins = setup.origins({"idle_s": "9"})
    assert origins["routes.azure.idle_s"] == "--idle-s"
    assert origins["routes.azure.upstream"] == "wiretape.toml"
    assert origins["routes.azure.think"] == "wiretape.toml"
    assert origins["routes.azure.keep_s"] == "default"


def test_key_stays_with_its_upstream(setup: Setup) -> None:
    """Otherwise one try of `--upstream` would send a provider's key to another host."""
    setup.file(f'upstream = "{OPENAI}"\nkey_env = "OPENAI"\nfallbacks = ["https://b.test/v1"]\nallow_plain_http = true')
    assert setup.config().routes[""].targets[0].key == Secret(KEY)
    other = setup.config({"upstream": "https://other.test/v1"}).routes[""].targets
    assert other == (Target(name="other.test/v1", url="https://other.test/v1"),)
    assert "allow_plain_http" in setup.refusal({"upstream": "http://other.test/v1"})
    given = setup.config({"upstream_key_env": "AZURE"}).routes[""].targets[0]
    assert given.key == Secret("azure-" + KEY)
    other_key = setup.config({"upstream": "https://o.test"}, WIRETAPE_UPSTREAM_KEY_ENV="AZURE").routes[""].targets[0]
    assert other_key.key is None


def test_key_without_an_upstream_in_its_layer_applies_to_the_only_one(setup: Setup) -> None:
    flags: Flags = {"upstream": "https://o.test"}
    expected = Secret("azure-" + KEY)
    assert setup.config(flags, WIRETAPE_UPSTREAM_KEY_ENV="AZURE").routes[""].targets[0].key == expected
    beside = {"WIRETAPE_UPSTREAM": OPENAI, "WIRETAPE_UPSTREAM_KEY_ENV": "AZURE"}
    assert setup.config(flags, **beside).routes[""].targets[0].key is None
    assert setup.config(None, **beside).routes[""].targets[0].key == expected
    setup.file('key_env = "AZURE"')
    assert setup.config(flags).routes[""].targets[0].key == expected
    assert setup.config(None, WIRETAPE_UPSTREAM=OPENAI).routes[""].targets[0].key == expected
    assert setup.config(flags, WIRETAPE_UPSTREAM=OPENAI).routes[""].targets[0].key is None


FALLBACKS = f"""
upstream = "{OPENAI}"
fallbacks = ["azure", "https://b.test/v1", {{ upstream = "https://c.test/v1", key_env = "AZURE" }},
  {{ upstream = "https://d.test/v1", caller_key = true }}, "{OPENAI}/beta"]
[routes.azure]
upstream = "https://a.test/v1"
key_env = "OPENAI"
fallbacks = [{{ upstream = "http://[::1]:1/v1" }}]
"""


def test_fallbacks_get_no_caller_key_on_another_host(setup: Setup) -> None:
    config = setup.file(FALLBACKS).config()
    found = [(target.name, target.key is not None, target.caller_key) for target in config.routes[""].targets]
    assert found == [
        ("api.openai.test/v1", False, True),
        ("a.test/v1", True, False),
        ("b.test/v1", False, False),
        ("c.test/v1", True, False),
        ("d.test/v1", False, True),
        ("api.openai.test/v1/beta", False, True),
    ]
    assert [target.name for target in config.routes["azure"].targets] == ["a.test/v1", "[::1]:1/v1"]
    assert setup.origins()["fallbacks"] == setup.origins()["routes.azure.fallbacks"] == "wiretape.toml"


def test_reading_tapes_needs_no_upstream_and_no_key(setup: Setup) -> None:
    config = setup.file('host = "0.0.0.0"\nport = 1').reading()
    assert (config.port, config.routes, config.keys) == (1, {}, ())
    setup.file(f'upstream = "{OPENAI}"\nkey_env = "UNSET"\n[keys]\na = {{ env = "UNSET" }}\n')
    setup.environ["WIRETAPE_KEY"] = "short"
    assert setup.reading().routes[""].targets[0].key is None
    assert setup.reading().keys == ()
    assert "routes" not in str(setup.reading().secrets)


def test_paths_are_relative_to_where_they_are_written(setup: Setup) -> None:
    (setup.folder / "etc").mkdir()
    setup.file(f'upstream = "{OPENAI}"\ndata = "tapes"\nca_file = "~/ca.pem"', "etc/my.toml")
    config = setup.config({"config": "etc/my.toml"})
    assert config.data == setup.folder / "etc" / "tapes"
    assert config.upstream.ca_file == Path("/somebody/ca.pem")
    assert setup.config({"config": "etc/my.toml", "data": "tapes"}).data == setup.folder / "tapes"
    assert setup.config(WIRETAPE_CONFIG="etc/my.toml", WIRETAPE_DATA=".").data == setup.folder
    assert setup.config({"config": Path("etc/my.toml"), "data": Path("/x")}).data == Path("/x")
    assert setup.origins({"config": "etc/my.toml"})["data"] == "etc/my.toml"


def test_data_folder_is_the_platforms(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, xdg, expected in (
        ("linux", "/xdg", "/xdg/wiretape"),
        ("linux", "relative", "/somebody/.local/share/wiretape"),
        ("linux", "", "/somebody/.local/share/wiretape"),
        ("darwin", "/xdg", "/somebody/Library/Application Support/wiretape"),
    ):
        monkeypatch.setattr("wiretape.proxy.config.load.sys.platform", platform)
        assert setup.config({"upstream": OPENAI}, XDG_DATA_HOME=xdg).data == Path(expected)
    assert "--data" in setup.refusal({"upstream": OPENAI}, HOME="")
    assert setup.config({"upstream": OPENAI, "data": "~/x"}, HOME="").data == setup.folder / "~" / "x"


def test_own_keys_are_read_and_masked(setup: Setup) -> None:
    (setup.folder / "bob.key").write_text(OWN + "-bob\n")
    (setup.folder / "bob.key").chmod(0o600)
    setup.file(
        f'upstream = "{OPENAI}"\nhost = "0.0.0.0"\n[keys]\nalice = {{ env = "OWN" }}\nbob = {{ file = "bob.key" }}'
    )
    loaded = load({}, setup.environ | {"WIRETAPE_KEY": OWN + "-default"}, setup.folder)
    assert [(key.name, key.secret.reveal()) for key in loaded.config.keys] == [
        ("default", OWN + "-default"),
        ("alice", OWN),
        ("bob", OWN + "-bob"),
    ]
    shown_keys = [row for row in loaded.rows if row.name.startswith("keys.")]
    assert shown_keys == [
        ("keys.default", "***", "WIRETAPE_KEY"),
        ("keys.alice", "***", "wiretape.toml"),
        ("keys.bob", "***", "wiretape.toml"),
    ]


def test_other_addresses_need_a_long_key(setup: Setup) -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"):
        assert setup.config({"upstream": OPENAI, "host": host}).host == host
    for host in ("0.0.0.0", "::", "192.168.1.5", "myhost", "127.0.0.1.evil.test"):  # noqa: S104
        message = setup.refusal({"upstream": OPENAI, "host": host})
        start, _, fresh = message.partition("export WIRETAPE_KEY=")
        assert start.startswith("host: ")
        assert setup.config({"upstream": OPENAI, "host": host}, WIRETAPE_KEY=fresh).keys[0].secret == Secret(fresh)
        assert fresh not in setup.refusal({"upstream": OPENAI, "host": host}), "a fresh one each time"
    assert setup.config({"upstream": OPENAI}, WIRETAPE_KEY="x" * KEY_CHARS_MIN).keys
    assert "export WIRETAPE_KEY=" in setup.refusal({"upstream": OPENAI}, WIRETAPE_KEY="x" * (KEY_CHARS_MIN - 1))


def test_key_file_contains_one_key_and_is_private(setup: Setup) -> None:
    key = setup.folder / "key"
    key.touch(0o600)
    setup.file(f'upstream = "{OPENAI}"\nkey_file = "link"')
    (setup.folder / "link").symlink_to(key)
    for content, expected in (
        (b"", "visible ASCII"),
        (b"two lines\nof it", "visible ASCII"),
        (b"a\xff", "visible ASCII"),
        (b"x" * (KEY_FILE_BYTES_MAX + 1), "longer"),
    ):
        key.write_bytes(content)
        assert expected in setup.refusal()
    key.write_bytes(b"x" * KEY_FILE_BYTES_MAX)
    assert setup.config().secrets == (Secret("x" * KEY_FILE_BYTES_MAX),)
    for mode in (0o604, 0o640, 0o660, 0o601):
        key.chmod(mode)
        assert "chmod 600" in setup.refusal()


REFUSED_URLS: list[tuple[str, str]] = [
    ("ftp://a.test", "https://"),
    ("a.test/v1", "https://"),
    ("", "--upstream"),
    ("https://", "host"),
    ("https://a.test:0/v1", "port"),
    ("https://a.test:x/v1", "port"),
    ("https://user:pw@a.test/v1", "user or password"),
    ("https://a.test/v1#x", "fragment"),
    ("https://a.test/v1 x", "spaces"),
    ("https://a.test\\@evil.test/v1", "backslashes"),
    ("https://ä.test/v1", "ASCII"),
    ("https://a.test/../v1", ".."),
    ("https://a.test/v1/%2e%2e", ".."),
    ("https://a.test/v1?key=abc", "key_env"),
    ("https://a.test/v1/chat/completions", "base URL"),
    ("http://a.test/v1", "allow_plain_http"),
    ("http://127.0.0.1.evil.test/v1", "allow_plain_http"),
    ("http://127.0.0.1:8787/v1", "this server itself"),
]


@pytest.mark.parametrize(("url", "expected"), REFUSED_URLS)
def test_upstream_urls_that_are_refused(setup: Setup, url: str, expected: str) -> None:
    assert expected in setup.refusal({"upstream": url or None})
    assert expected in setup.refusal(WIRETAPE_UPSTREAM=url)
    if url:
        message = setup.file(f"[routes.a]\nupstream = {json.dumps(url)}").refusal()
        assert message.startswith("wiretape.toml: routes.a.upstream: ") or expected == "this server itself"
        assert expected in message


def test_models_in_a_flag_are_pairs_and_no_table(setup: Setup) -> None:
    """A table of TOML once became the pattern `{ "claude-*"`, which fits nothing."""
    for given in ('{ "claude-*" = "qwen3" }', "'claude-*'=qwen3", "claude-*={qwen3}"):
        with pytest.raises(ConfigError, match="in a variable or flag"):
            setup.config({"upstream": OPENAI, "models": given})
    found = setup.config({"upstream": OPENAI, "models": "claude-*=qwen3,gpt-*=a b"})
    assert found.routes[""].models == (("claude-*", "qwen3"), ("gpt-*", "a b"))


def test_upstream_urls_that_are_accepted(setup: Setup) -> None:
    urls = ["https://a.test", "https://a.test:8443/api/v1/", "https://a.test/v1beta/openai", "https://user.test/@x/v1"]
    urls += ["https://a.test/openai?api-version=2024-10-21", "http://localhost:11434/v1", "http://[::1]:1/v1"]
    for url in urls:
        assert setup.config({"upstream": url}).routes[""].targets[0].url == url
    setup.file(f'[routes.a]\nupstream = "{OPENAI}"')
    assert list(setup.config().routes) == ["a"], "the default route is optional"


UPSTREAM = f'upstream = "{OPENAI}"\n'

#: A line of the file, and the error without the file's name at its beginning.
REFUSED: list[tuple[str, str]] = [
    ("prot = 1", "Unknown setting prot in wiretape.toml (did you mean port?)"),
    ("[routes.a]\nport = 1", "Unknown setting routes.a.port in wiretape.toml (known are "),
    ('"a\\nb" = 1', "Unknown setting a?b in wiretape.toml (known are "),
    (f"{'a' * 100} = 1", f"Unknown setting {'a' * 60}... in wiretape.toml (known are "),
    ('port = "1"', "port: must be a whole number from 0 to 65535"),
    ('hosts = ["a:1"]', "hosts: must be a list of host names without ports"),
    ('origins = ["a.test"]', "origins: must be a list of origins like"),
    ('data = ""', "data: must be a path to a folder"),
    ('host = "a/b"', "host: must be a name or address of this machine"),
    ("port = = 1", "not TOML at line 2, column 8"),
    ("port = " + "9" * 5_000, "a number is too long"),
    ("a = " + "[" * 3_000, "a number is too long, or brackets are nested too deeply"),
    ("keys" + ".a" * 3_000 + " = 1", "keys.a: must be { env ="),
    ("routes = 1", "routes: must be a table"),
    ("[routes]\na = 1", "routes.a: must be a table"),
    ("[routes.a]\nidle_s = 1", "routes.a.upstream: is missing"),
    ('[routes."a/b"]', "routes.a/b: a route's name must"),
    ("[routes.wiretape]", "routes.wiretape: a route's name must"),
    ('key_env = "UNSET_KEY"', "key_env: the environment variable UNSET_KEY is not set"),
    ('key_env = "AKIA0SECRET0IN0THE0WRONG0PLACE"', "key_env: the environment variable that it names is not set"),
    ('key_env = "sk-abc"', "key_env: must be the name of an environment variable"),
    ('key_env = "OPENAI"\nkey_file = "x"', "key_file: there is a key_env already"),
    ('[keys]\na = "x"', "keys.a: must be { env = VARIABLE } or { file = PATH }, never"),
    ('[keys]\na = { env = "OWN", file = "x" }', "keys.a: must be { env ="),
    ('[keys]\na = { env = "SHORT" }', "keys.a: a key of Wiretape's own has at least 32"),
    ('[keys]\na = { env = "OWN" }\nb = { env = "OWN" }', "keys: two names have the same key"),
    ('[keys]\n"a b" = { env = "OWN" }', "keys.a b: a key's name must be short"),
    ("keys = 1", "keys: must be a table"),
    ('fallbacks = "x"', "fallbacks: must be a list of route names"),
    ('fallbacks = ["nope"]', "fallbacks[0]: there is no other route nope (other routes: none)"),
    (
        f'fallbacks = ["b", "nope"]\n[routes.b]\n{UPSTREAM}',
        "fallbacks[1]: there is no other route nope (other routes: b)",
    ),
    ("fallbacks = [1]", "fallbacks: must be a list of route names"),
    ("fallbacks = [{}]", "fallbacks[0].upstream: is missing"),
    ("fallbacks = [{ idle_s = 1 }]", "Unknown setting fallbacks[0].idle_s in wiretape.toml"),
    ('fallbacks = ["http://b.test"]', "fallbacks[0].upstream: must begin with https"),
    ('egress_user = "a"', "egress_user: needs egress_proxy as well"),
    ('egress_proxy = "http://a:b@c.test:1"', "egress_proxy: must be http:// or"),
    ('egress_proxy = "http://c.test:99999"', "egress_proxy: must be a URL"),
    ('egress_proxy = "http://c.test:1"\negress_password_env = "OWN"', "egress_password_env: needs egress_user as well"),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_error_names_file_setting_and_what_is_allowed(setup: Setup, text: str, expected: str) -> None:
    assert setup.file(UPSTREAM + text).refusal().removeprefix("wiretape.toml: ").startswith(expected)


def test_errors_name_flags_and_variables_as_written(setup: Setup) -> None:
    assert setup.file('key_env = "OPENAI"').refusal() == "wiretape.toml: key_env: needs an upstream as well"
    assert setup.file("fallbacks = []").refusal() == "wiretape.toml: fallbacks: needs an upstream as well"
    setup.file("")
    assert setup.refusal({"port": "x"}) == "--port: must be a whole number from 0 to 65535"
    assert setup.refusal(WIRETAPE_PORT="http://a") == "WIRETAPE_PORT: must be a whole number from 0 to 65535"
    assert setup.refusal({"upstream": OPENAI, "upstream_key_env": "UNSET"}).startswith("--upstream-key-env: ")
    unset = {"WIRETAPE_UPSTREAM": OPENAI, "WIRETAPE_UPSTREAM_KEY_ENV": "UNSET"}
    assert setup.refusal(None, **unset) == "WIRETAPE_UPSTREAM_KEY_ENV: the environment variable UNSET is not set"


def test_misspelled_variable_is_an_error(setup: Setup) -> None:
    flags: Flags = {"upstream": OPENAI}
    assert setup.refusal(flags, WIRETAPE_PRT="1") == "Unknown setting WIRETAPE_PRT (did you mean WIRETAPE_PORT?)"
    assert "WIRETAPE_KEY?" in setup.refusal(flags, WIRETAPE_KEYS="x")
    setup.file('[keys]\na = { env = "WIRETAPE_KEY_A" }')
    assert setup.config(flags, WIRETAPE_KEY_A=OWN).keys


#: What Kubernetes 1.31 sets in each container next to a service `wiretape` with a port 8787 named `http`.
KUBERNETES = {
    "WIRETAPE_SERVICE_HOST": "10.0.171.239",
    "WIRETAPE_SERVICE_PORT": "8787",
    "WIRETAPE_SERVICE_PORT_HTTP": "8787",
    "WIRETAPE_PORT": "tcp://10.0.171.239:8787",
    "WIRETAPE_PORT_8787_TCP": "tcp://10.0.171.239:8787",
    "WIRETAPE_PORT_8787_TCP_PROTO": "tcp",
    "WIRETAPE_PORT_8787_TCP_PORT": "8787",
    "WIRETAPE_PORT_8787_TCP_ADDR": "10.0.171.239",
}


@pytest.mark.parametrize("port", ["tcp://10.0.0.1:8787", "tcp://[fd00::1]:8787", "udp://10.0.0.1:1"])
def test_kubernetes_service_variables_are_ignored(setup: Setup, port: str) -> None:
    loaded = load({"upstream": OPENAI}, setup.environ | KUBERNETES | {"WIRETAPE_PORT": port}, setup.folder)
    assert (loaded.config.port, loaded.origins["port"], loaded.unknown) == (8787, "default", ())
    setup.file("port = 9")
    assert setup.config({"upstream": OPENAI}, WIRETAPE_PORT=port).port == 9
    beside = {name.replace("WIRETAPE", "WIRETAPE_STAGING"): value for name, value in KUBERNETES.items()}
    assert load({"upstream": OPENAI}, setup.environ | beside, setup.folder).unknown == ()
    assert "must begin" in setup.refusal(WIRETAPE_UPSTREAM=port), "which no service's name comes to"


def test_unrelated_variables_are_reported_and_ignored(setup: Setup) -> None:
    setup.file('[keys]\na = { env = "WIRETAPE_ALICE" }')
    environ = {"WIRETAPE_TIMEOUT_S": "5", "WIRETAPE_STRICT": "1", "WIRETAPE_ALICE": OWN, "WIRETAPE_CORPUS": "x"}
    loaded = load({"upstream": OPENAI}, setup.environ | environ, setup.folder)
    assert loaded.unknown == ("WIRETAPE_STRICT", "WIRETAPE_TIMEOUT_S")
    assert load({"upstream": OPENAI}, setup.environ | {"WIRETAPE_ALICE": OWN}, setup.folder).unknown == ()
    named = setup.environ | {"WIRETAPE_ALICE": OWN, "WIRETAPE_MINE": "k" * 40}
    for flags, more in (
        ({"upstream_key_env": "WIRETAPE_MINE"}, {}),
        ({}, {"WIRETAPE_UPSTREAM_KEY_ENV": "WIRETAPE_MINE"}),
    ):
        assert load({"upstream": OPENAI, **flags}, named | more, setup.folder).unknown == ()


def test_named_file_must_exist_and_be_readable(setup: Setup) -> None:
    assert setup.refusal({"config": "no.toml"}) == "no.toml: no such file"
    assert "cannot be read" in setup.refusal({"config": "."})
    (setup.folder / "wiretape.toml").write_bytes(b"a = '\xff'")
    assert setup.refusal() == "wiretape.toml: not TOML: not UTF-8"


#: Places where a secret may be, some by mistake: the file, and a variable; `@` is the secret.
CANARIES = {
    "key_env": (UPSTREAM + 'key_env = "K"', "K", "@"),
    "key_env of a route": (f"[routes.a]\n{UPSTREAM}key_env = 'K'", "K", "@"),
    "key_env of a fallback": (UPSTREAM + f'fallbacks = [{{ upstream = "{OPENAI}", key_env = "K" }}]', "K", "@"),
    "our own key": (UPSTREAM, "WIRETAPE_KEY", "@"),
    "a named key": (UPSTREAM + '[keys]\na = { env = "K" }', "K", "@"),
    "the egress proxy's": (
        UPSTREAM + 'egress_proxy = "http://p.test:1"\negress_user = "u"\negress_password_env = "K"',
        "K",
        "@",
    ),
    "a key of two lines": (UPSTREAM + 'key_env = "K"', "K", "@\n@"),
    "a password in the URL": ('upstream = "https://u:@@a.test/v1"', "", ""),
    "a user in the URL": ("", "WIRETAPE_UPSTREAM", "https://@@a.test/v1"),
    "a key in the URL's query": ('upstream = "https://a.test/v1?key=@"', "", ""),
    "a key in the URL's fragment": ('upstream = "https://a.test/v1#@"', "", ""),
    "a password of the egress proxy": (UPSTREAM + 'egress_proxy = "http://u:@@p.test:1"', "", ""),
    "the key itself as a variable": (UPSTREAM, "WIRETAPE_UPSTREAM_KEY_ENV", "@"),
    **{
        f"the key itself in {line}": (UPSTREAM + line, "", "")
        for line in (
            'key_env = "@"',
            "key_env = @",
            'key_file = "@"',
            'fallbacks = ["@"]',
            'port = "@"',
            '[keys]\na = "@"',
            '[keys]\na = { env = "@" }',
            'store = "postgresql://u:@@h/d"',
        )
    },
}


@pytest.mark.parametrize("place", CANARIES)
def test_no_secret_appears_in_errors_or_output(setup: Setup, place: str) -> None:
    """failures.md G15, the part of the configuration."""
    secret = "c" + secrets.token_hex(24)
    text, variable, value = CANARIES[place]
    setup.file(text.replace("@", secret, 1))
    said: list[str] = []
    try:
        loaded = load({}, setup.environ | {variable: value.replace("@", secret, 1)}, setup.folder)
    except ConfigError as error:
        said += traceback.format_exception(error)
    else:
        said += [repr(loaded), str(loaded), repr(loaded.rows), repr(loaded.config.secrets)]
    assert said
    assert not [text for text in said if secret[:20] in text]


STORE = next(setting.kind for setting in SERVER if setting.name == "store")
WORDS, PATH = choice(Literal["a", "b"]), path("a path")
COUNT, OPEN_COUNT, SIZE, SPAN = count(1, 10), count(0, 5, "unlimited"), size(1, "unlimited"), seconds()

ACCEPTED_VALUES: list[tuple[Kind, Any, Any]] = [
    (COUNT, 1, 1),
    (COUNT, "10", 10),
    (OPEN_COUNT, "unlimited", None),
    (SIZE, 1, 1),
    (SIZE, 2**63 - 1, 2**63 - 1),
    (SIZE, "3 B", 3),
    (SIZE, "3KiB", 3072),
    (SIZE, "2 TiB", 2 * 1024**4),
    (SPAN, 0.001, 0.001),
    (SPAN, 604_800, 604_800.0),
    (SPAN, "1e2", 100.0),
    (seconds(zero=True), 0, 0.0),
    (ON_OFF, "Off", False),
    (names("names", "[A-Za-z]+"), [], ()),
    (PATH, Path("a"), Path("a")),
    *(
        (STORE, url, url)
        for url in ("postgresql:///d?host=/run", "postgres://u@[::1]:5,h:6/d?sslmode=require", "postgres://?service=s")
    ),
]

REFUSED_VALUES: list[tuple[Kind, Any]] = [
    *(
        (COUNT, given)
        for given in (0, 11, -1, True, 1.0, None, "", "0", "11", "-1", "+1", "1_0", "٣", "1\n", "unlimited")
    ),
    *((SIZE, given) for given in (0, 2**63, True, 1.5, "", "-1", "5GB", "5 gib", "1.5 GiB", "9" * 19, "8388608 TiB")),
    *((SPAN, given) for given in (0, -1, 604_801, True, None, "", "x", "nan", "inf", "-inf", float("nan"), ["a"])),
    (seconds(zero=True), -0.1),
    *((ON_OFF, given) for given in (None, "", "yes", "2", ["a"])),
    *((WORDS, given) for given in ("", "A", "c", None, 1)),
    *((text("a", "[a-z]+"), given) for given in ("", "A", "a\n", "ä", None, 1, b"a")),
    *((names("names", "[a-z]+"), given) for given in ("a,,b", "a b", [1], ["a", ""], None, 5, {"a": 1})),
    *((PATH, given) for given in ("", "a\0b", None, b"a")),
    *((STORE, given) for given in ("", "host=h password=secret", "http://h/d", "postgresql://u:secret@h/d")),
    # Not what libpq takes for the password, but what was meant as one.
    *((STORE, given) for given in ("postgresql://u:se@cret@h/d", "postgresql://u:se/cret@h/d", "postgres://u:s#x@h")),
    *((STORE, given) for given in ("postgres://h/d?pass%77ord=secret", "postgres://h?a=b&sslpassword=s")),
]


@pytest.mark.parametrize(("kind", "given", "value"), ACCEPTED_VALUES)
def test_accepted_values(kind: Kind, given: Any, value: Any) -> None:
    read = kind.read(given)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("kind", "given"), REFUSED_VALUES)
def test_refused_values(kind: Kind, given: Any) -> None:
    with pytest.raises(ValueError, match=r"^"):
        kind.read(given)


def test_example_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", read("reference/configuration.md"), re.DOTALL)
    (tmp_path / "wiretape.toml").write_text(example, encoding="utf-8")
    (tmp_path / "bob.key").write_text("b" * 43)
    (tmp_path / "bob.key").chmod(0o600)
    environ = {"HOME": "/somebody", "AZURE_OPENAI_KEY": "k", "WIRETAPE_KEY_ALICE": "a" * 43}
    config = load({}, environ, tmp_path).config
    assert list(config.routes) == ["", "azure", "local", "hermes"]
    assert config.routes["local"].targets[0].speaks == "chat"
    assert [key.name for key in config.keys] == ["alice", "bob"]
    assert len(config.routes[""].targets) == 3


def test_workers_need_a_folder_that_all_can_read_and_memory_for_each(setup: Setup) -> None:
    assert setup.config({"upstream": OPENAI, "workers": "256"}).workers == 256
    assert setup.refusal({"upstream": OPENAI, "workers": "257"}).startswith(
        "--workers: must be a whole number from 1 to 256"
    )
    assert "data folder" in setup.refusal({"upstream": OPENAI, "workers": "2", "durability": "none"})
    assert (
        setup.config({"upstream": OPENAI, "workers": "2", "memory_max_bytes": "128 MiB"}).memory_max_bytes
        == 2 * MEMORY_MAX_BYTES_MIN
    )
    assert "for each of the workers" in setup.refusal(
        {"upstream": OPENAI, "workers": "3", "memory_max_bytes": "128 MiB"}
    )
