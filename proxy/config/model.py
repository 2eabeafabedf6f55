"""Everything a user may choose: frozen dataclasses whose fields are the settings, with default, kind and reason.

docs/reference/configuration.md is drawn from `SERVER`, `ROUTE` and `TARGET`. A `Kind` checks and converts a value.
Errors say what is allowed and never what was given: that may be a key in the wrong place.
"""

import base64
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, NoReturn, get_args
from urllib.parse import parse_qsl, urlsplit

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.settings import OnPartial, Profile, Reasoning, Settings, Tools

from .. import limits
from ..http1 import Header

__all__ = [
    "FLAGS",
    "ON_OFF",
    "PREFIX",
    "ROUTE",
    "SERVER",
    "TARGET",
    "Config",
    "ConfigError",
    "Egress",
    "Keep",
    "Key",
    "Kind",
    "Route",
    "Secret",
    "SecretError",
    "Setting",
    "Speaks",
    "Target",
    "UpstreamSettings",
    "choice",
    "count",
    "from_environment",
    "from_file",
    "names",
    "option",
    "path",
    "plain_word",
    "renames",
    "seconds",
    "size",
    "text",
]

PREFIX: Final = "WIRETAPE_"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_OFF: Final = ("false", "off", "0")
#: A week. A longer span is a typo for "unlimited".
_SECONDS_MAX: Final = 604_800

#: What a header can carry without quoting: visible ASCII.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+", re.ASCII)
_MASK: Final = "Secret(***)"
#: Names of variables and routes. Digits inside a word make it a key.
_WORDS: Final = re.compile(r"_?(?:[A-Za-z]{1,20}[0-9]{0,3}|[0-9]{1,3})(?:[_-](?:[A-Za-z]{1,20}[0-9]{0,3}|[0-9]{1,3}))*")
_NAME_CHARS_MAX: Final = 64


class SecretError(ValueError):
    """What is wrong with a secret, without the secret, which may have been put where a name belongs."""


class Secret:
    """A credential that only `reveal` shows; printing, formatting, JSON and pickling do not."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the credential, for the one header it belongs in."""
        return self._value

    def __repr__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._digest(), other._digest())

    def __hash__(self) -> int:
        return hash(self._digest())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")

    def _digest(self) -> bytes:
        return hashlib.sha256(self._value.encode("utf-8", "surrogateescape")).digest()


class Key(NamedTuple):
    """One of Wiretape's own keys and the name its owner gave it."""

    name: str
    secret: Secret


def from_environment(variable: str, environ: Mapping[str, str]) -> Secret:
    """Return the secret in a variable."""
    value = environ.get(variable, "").strip()
    if not value:
        raise SecretError(f"the environment variable {plain_word(variable, 'that it names')} is not set")
    return _checked(value)


def plain_word(name: str, other: str) -> str:
    """Return a name that is made of words, for a message, and `other` for what may be a key in its place."""
    return name if len(name) <= _NAME_CHARS_MAX and _WORDS.fullmatch(name) else other


def from_file(path: Path) -> Secret:
    """Return the secret in a file. Links are followed, as mounted secrets are links; the file's mode counts."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"cannot open the file that it names: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError("what it names is not a file")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise SecretError(f"the file that it names is open to others (mode {mode:04o}); run chmod 600 on it")
        content = os.read(handle, limits.KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(content) > limits.KEY_FILE_BYTES_MAX:
        raise SecretError(f"the file that it names is longer than {limits.KEY_FILE_BYTES_MAX} bytes")
    return _checked(content.decode("latin-1").strip())


def _checked(value: str) -> Secret:
    if not _VISIBLE.fullmatch(value):
        raise SecretError("a key must be one line of visible ASCII without spaces")
    return Secret(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how to describe it, its types in TOML, the pattern of its text, and how to convert that."""

    allowed: str
    toml: tuple[type, ...]
    pattern: str
    convert: Callable[[str], Any] = str

    def read(self, given: Any) -> Any:
        """Return the value of a TOML value or of the text of a flag or variable, or raise ValueError."""
        match given:
            case str() | Path() | int() | float():
                given = str(given).lower() if isinstance(given, bool) else str(given)
            case [*parts] if all(isinstance(part, str) for part in parts):
                given = ",".join(parts)
            case dict():
                table: dict[str, object] = given  # pyright: ignore[reportUnknownVariableType] - tomllib's keys are texts
                if not all(isinstance(value, str) for value in table.values()):
                    raise ValueError
                given = ",".join(f"{name}={value}" for name, value in table.items())
            case _:
                raise ValueError
        if not re.fullmatch(self.pattern, given, re.ASCII):
            raise ValueError
        return self.convert(given)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in wiretape.toml, its kind, and why a user may want to change it."""

    name: str
    kind: Kind
    reason: str
    #: The path of attributes from Config, Route or Target to the value.
    place: str = ""
    #: Its name as a variable and flag, where `name` alone would mean something else there.
    alias: str = ""
    #: False for settings about one upstream: outside `[routes.NAME]` they apply to the default route only.
    shared: bool = True

    @property
    def environment(self) -> str:
        """The environment variable."""
        return PREFIX + (self.alias or self.name).upper()

    @property
    def flag(self) -> str:
        """The option of `wiretape serve`."""
        return "--" + (self.alias or self.name).replace("_", "-")


def option(default: Any, kind: Kind, reason: str, *, name: str = "", alias: str = "", shared: bool = True) -> Any:
    """Return a dataclass field that is a setting, named like the field unless `name` is given."""
    return field(default=default, metadata={"setting": Setting(name, kind, reason, alias=alias, shared=shared)})


def text(allowed: str, pattern: str) -> Kind:
    """Return the kind of texts that match a pattern."""
    return Kind(allowed, (str,), pattern)


def path(allowed: str) -> Kind:
    """Return the kind of paths. The loader makes them absolute, as that depends on where they were written."""
    return Kind(allowed, (str,), r"(?s)[^\0]+", Path)


def choice(literal: Any) -> Kind:
    """Return the kind of one of the words of a Literal type."""
    words = get_args(literal)
    return Kind(" or ".join(f'"{word}"' for word in words), (str,), "|".join(map(re.escape, words)))


def names(what: str, pattern: str) -> Kind:
    """Return the kind of lists of names, which have commas between them in text."""
    some = rf"\s*(?:{pattern})\s*"
    return Kind(f"a list of {what}", (list,), rf"(?:{some}(?:,{some})*)?", _listed)


def _listed(given: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in given.split(",")) if given else ()


def renames(what: str) -> Kind:
    """Return the kind of tables from patterns to names, which are pairs like `pattern=name` with commas in text.

    Braces and quotes are refused, so that a table of TOML in a flag is not taken for a pair.
    """
    name = r"""\s*[^\s=,{}"'][^=,{}"']*"""
    return Kind(f"a table of {what}", (dict,), rf"(?:{name}={name}(?:,{name}={name})*)?", _renamed)


def _renamed(given: str) -> tuple[tuple[str, str], ...]:
    pairs = (pair.partition("=") for pair in given.split(",")) if given else ()
    return tuple((pattern.strip(), name.strip()) for pattern, _, name in pairs)


ON_OFF: Final = Kind("true or false", (bool,), "(?i:true|on|1|false|off|0)", lambda given: given.lower() not in _OFF)


def count(least: int, most: int, without: str | None = None) -> Kind:
    """Return the kind of whole numbers; the word `without` means None."""
    kind = Kind(f"a whole number from {least} to {most}", (int,), "[0-9]{1,18}", int)
    return _bounded(kind, least, most, without)


def size(least: int, without: str | None = None) -> Kind:
    """Return the kind of byte counts, with or without a unit."""
    allowed = f'bytes, at least {least}, as a number or like "5 GiB"'
    pattern = f"[0-9]{{1,19}}( ?({'|'.join(_UNITS)}))?"
    return _bounded(Kind(allowed, (int, str), pattern, _bytes), least, 2**63 - 1, without)


def _bytes(given: str) -> int:
    number = given.rstrip(" BKMGTi")
    return int(number) << 10 * _UNITS.index(given.removeprefix(number).strip() or "B")


def seconds(*, zero: bool = False) -> Kind:
    """Return the kind of finite spans of time."""
    allowed = f"seconds, {'from' if zero else 'more than'} 0 and at most {_SECONDS_MAX}"
    return _bounded(Kind(allowed, (int, float), "[0-9.e+-]+", float), 0 if zero else 1e-9, _SECONDS_MAX)


def _bounded(kind: Kind, least: float, most: float, without: str | None = None) -> Kind:
    def convert(given: str) -> float | None:
        if given == without:
            return None
        value: float = kind.convert(given)
        if not least <= value <= most:
            raise ValueError
        return value

    if without is None:
        return replace(kind, convert=convert)
    return Kind(f'{kind.allowed}, or "{without}"', (*kind.toml, str), f"{without}|{kind.pattern}", convert)


def _without_password(url: str) -> str:
    """Raise ValueError for a password, which everyone could read in the list of processes."""
    query = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    if any("password" in name for name, _ in query):
        raise ValueError
    return url


#: Nothing after the host may contain an @, nor a user a colon: it would be a part of a password.
_STORE: Final = Kind(
    "a URL like postgresql://user@host/database without a password, which PGPASSWORD or the file in PGPASSFILE has",
    (str,),
    r"postgres(?:ql)?://(?:[^:@/?#\s]*@)?[^@#\s]*",
    _without_password,
)
_Durability = Literal["process", "disk", "none"]
_Requests = Literal["full", "hash"]
_OnLogFailure = Literal["stop", "serve"]
_OnClientGone = Literal["cancel", "drain", "keep"]
_History = Literal["off", "warn", "repair"]
_Retry = Literal["always", "before_send", "never"]
_Runs = Literal["own", "relay"]
_System = Literal["anywhere", "first"]
_OtelGenai = Literal["1.41", "latest"]
_LogFormat = Literal["json", "text"]
_KeyHeader = Literal["authorization", "api-key", "x-api-key"]
#: What an upstream speaks: one dialect, that of each client, or that of each client where it has a path for it.
Speaks = Literal["auto", "chat", "responses", "messages", "same"]

_UNLIMITED: Final = "unlimited"
_HOST: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]+\]"
_ORIGIN: Final = r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+"
_PROXY: Final = r"https?://[A-Za-z0-9._-]+:[0-9]{1,5}/?|https?://\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}/?"
_VARIABLE: Final = text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class ConfigError(WiretapeError):
    """A configuration that cannot be used: one line with the place, the setting and what is allowed, but no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One upstream. Its key replaces the caller's."""

    name: str
    #: The base URL: its path replaces our prefix, its query goes before the caller's.
    url: str
    key: Secret | None = None
    key_header: _KeyHeader = option(
        "authorization",
        choice(_KeyHeader),
        "The header of that key; by default `api-key` on Azure's hosts, and `x-api-key` for an upstream that "
        "`speaks` messages and on Anthropic's.",
        alias="upstream_key_header",
    )
    speaks: Speaks = option(
        "auto",
        choice(Speaks),
        "The dialect of this upstream, into which requests of clients that speak another one are crossed. `auto` asks "
        "in the client's own and crosses to chat if the upstream has no path for it, `same` never crosses.",
    )
    allow_plain_http: bool = option(
        False, ON_OFF, "Accept http:// to another machine, where anyone on the way can read keys and responses."
    )
    trace: bool = option(
        False,
        ON_OFF,
        "Send it a `traceparent` that names Wiretape's span, and the caller's `tracestate` and `baggage`.",
    )
    caller_key: bool = option(
        True, ON_OFF, "Pass the caller's key if this upstream has none of its own. Off for fallbacks on another host."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path prefix and its upstreams. The default route has no name: it is /v1, the others are /<name>/v1."""

    name: str
    #: The first one, then its fallbacks in order.
    targets: tuple[Target, ...]
    settings: Settings = field(default_factory=Settings)
    include_usage: bool = option(False, ON_OFF, "Request usage even if the client did not; only the tape shows it.")
    attempts: int = option(limits.ATTEMPTS, count(1, limits.ATTEMPTS_MAX), "Attempts while nothing was delivered.")
    retry: _Retry | None = option(
        None,
        choice(_Retry),
        "What is repeated: `always` any failed attempt, `before_send` one whose connection failed, `never` none. "
        "Without it `always`, and `before_send` on a hermes route, because the agent's tools may have run.",
        shared=False,
    )
    first_byte_s: float = option(
        limits.FIRST_BYTE_TIMEOUT_S, seconds(), "Time to the first frame. Reasoning models are silent for minutes."
    )
    idle_s: float = option(limits.IDLE_TIMEOUT_S, seconds(), "Longest silence inside a stream. Pings do not count.")
    keepalive_s: float = option(
        limits.KEEPALIVE_S, seconds(), "Silence before the client gets a keepalive. Load balancers close after 60 s."
    )
    finish_grace_s: float = option(
        limits.FINISH_GRACE_S, seconds(zero=True), "Time after the finish reason for usage and the terminator."
    )
    on_client_gone: _OnClientGone = option(
        "cancel",
        choice(_OnClientGone),
        "When the last reader leaves: `cancel` the upstream, `drain` it for its usage, or `keep` it for a resume.",
    )
    drain_s: float = option(limits.CLIENT_DRAIN_S, seconds(zero=True), "How long `drain` lasts.")
    keep_s: float = option(limits.CLIENT_KEEP_S, seconds(zero=True), "How long `keep` lasts.")
    synthesise: bool = option(True, ON_OFF, "Turn a plain response into a requested stream; otherwise it is a 502.")
    tape: bool = option(
        True, ON_OFF, "Record exchanges of no dialect, such as the list of models. Without it their id is only logged."
    )
    history: _History = option(
        "warn",
        choice(_History),
        "Tool markers and Wiretape's own warnings in a client's history, which models imitate: `warn` counts them, "
        "`repair` removes them before they go upstream.",
    )
    models: tuple[tuple[str, str], ...] = option(
        (),
        renames('model patterns and names like `{ "claude-*" = "qwen3" }`; in a variable or flag `claude-*=qwen3`'),
        "The upstream's names for the models that clients ask for; the first pattern that fits counts.",
        shared=False,
    )
    system: _System = option(
        "anywhere",
        choice(_System),
        "Where a crossed request may have system messages: with `first` later ones become marked user messages.",
        shared=False,
    )
    max_tokens: int | None = option(
        None,
        count(1, limits.MAX_TOKENS_MAX),
        "What a crossed request asks for if its client names no limit. Without it 32000 where the dialect demands one.",
        shared=False,
    )
    max_tokens_max: int | None = option(
        None, count(1, limits.MAX_TOKENS_MAX), "The highest limit that a crossed request may ask for.", shared=False
    )
    cache_control: bool = option(
        False, ON_OFF, "Pass a client's `cache_control` marks on in crossed requests.", shared=False
    )
    hermes: bool = option(False, ON_OFF, "It is hermes-agent: trust its tool events and endings.", shared=False)
    runs: _Runs = option(
        "own",
        choice(_Runs),
        "`/v1/runs`: `own` makes each turn a chat completion, `relay` needs an upstream that has runs itself.",
        shared=False,
    )

    @property
    def repeats(self) -> _Retry:
        """What is repeated on this route."""
        return self.retry or ("before_send" if self.hermes else "always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How much is kept; None is unlimited."""

    days: int | None = option(7, count(0, 36_500, _UNLIMITED), "Older tapes are deleted in steps.", name="keep_days")
    bytes: int | None = option(5 * 1024**3, size(0, _UNLIMITED), "The oldest tapes beyond it go.", name="keep_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The proxy between Wiretape and all upstreams, from the settings and never from the environment."""

    tls: bool = False
    host: str
    port: int
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def headers(self) -> tuple[Header, ...]:
        """The credentials that only this proxy sees."""
        if self.user is None:
            return ()
        token = base64.b64encode(f"{self.user}:{self.password}".encode())
        return ((b"Proxy-Authorization", b"Basic " + token),)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """Connections to upstreams. Reading has no deadline here: the relay has its own for first byte and silence."""

    connect_timeout_s: float = option(
        limits.CONNECT_TIMEOUT_S, seconds(), "Time to resolve, connect and finish TLS, also through the egress proxy."
    )
    write_timeout_s: float = option(limits.WRITE_TIMEOUT_S, seconds(), "How long sending a request may stand still.")
    ca_file: Path | None = option(
        None,
        path("a path to a file of certificates in PEM"),
        "Certificates to trust in addition to the system's. Verification cannot be switched off.",
    )
    egress: Egress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration."""

    host: str = option(
        "127.0.0.1",
        text("a name or address of this machine", _HOST + "|[0-9A-Fa-f:.]+"),
        "Where to listen. Any address but this machine's loopback needs a key of Wiretape's own.",
    )
    port: int = option(8787, count(0, limits.PORT_MAX), "0 picks a free port.")
    workers: int = option(
        1,
        count(1, limits.WORKERS_MAX),
        "Processes that share the port, on Linux: one for each core that streams may use.",
    )
    data: Path = option(MISSING, path("a path to a folder"), "The tapes' folder; by default the platform's for data.")
    durability: _Durability = option(
        "process",
        choice(_Durability),
        "`process` survives a crash and loses at most a second in a power cut, `disk` delivers only what is durable, "
        "`none` keeps tapes in memory.",
    )
    requests: _Requests = option(
        "full", choice(_Requests), "`hash` keeps only the length, the hash and a few facts of each request body."
    )
    search: bool = option(
        True, ON_OFF, "Keep the text of each answer in the catalogue, to be searched. Off with `requests = hash`."
    )
    on_log_failure: _OnLogFailure = option(
        "stop", choice(_OnLogFailure), "When the disk fails: `stop` ends streams, `serve` marks them as untaped."
    )
    keep: Keep = field(default_factory=Keep)
    store: str | None = option(
        None,
        _STORE,
        "The PostgreSQL database to which tapes are shipped, shared by several machines (needs `wiretape[postgres]`). "
        "Its tables come from `wiretape db migrate`.",
    )
    instance: str | None = option(
        None,
        text("a name of letters, digits and - _ .", r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),
        "The name of this proxy in the store; no other may have it. Without it the host's and four digits, kept in "
        "the data folder.",
    )
    store_dead_s: float = option(
        limits.STORE_DEAD_S,
        seconds(),
        "How long a proxy on the store may be silent before another one ends its streams as `crashed`.",
    )
    hosts: tuple[str, ...] = option(
        (),
        names("host names without ports", _HOST),
        "More names of this server. Otherwise only `localhost`, `127.0.0.1`, `[::1]` and `host` are accepted, because "
        "a page can point its own name at this machine (DNS rebinding).",
    )
    origins: tuple[str, ...] = option(
        (),
        names("origins like `app://name` or `https://name:port`", _ORIGIN),
        "Desktop applications and extensions that may send requests, without CORS.",
    )
    cors_origins: tuple[str, ...] = option(
        (),
        names("origins like `https://name` or `http://localhost:3000`", _ORIGIN),
        "Web pages that may send requests and read responses, by CORS. Without it responses have no CORS headers and "
        "preflights are refused, so a browser page of another origin can neither read a response nor send JSON.",
    )
    streams_max: int = option(limits.STREAMS_MAX, count(1, 1_000_000), "Streams at once. Each needs three descriptors.")
    memory_max_bytes: int | None = option(
        None,
        size(limits.MEMORY_MAX_BYTES_MIN, _UNLIMITED),
        "Memory of this process, such as a container's limit. Requests and readers are refused with 503 before it is "
        "reached; an answer or event that is too large for it ends as `limit`.",
    )
    runs_max: int = option(limits.RUNS_MAX, count(1, 1_000_000), "Runs of one caller that may be active at once.")
    runs_unwatched_s: float = option(
        limits.RUNS_UNWATCHED_S, seconds(), "How long an active run goes on while no client reads its events."
    )
    runs_waiting_s: float = option(
        limits.RUNS_WAITING_S, seconds(), "How long a run waits for the outputs of its tools, or for an approval."
    )
    runs_unread_s: float = option(
        limits.RUNS_UNREAD_S, seconds(), "How long a finished run is kept that no client has seen the end of."
    )
    body_bytes_max: int = option(limits.REQUEST_BYTES_MAX, size(1), "Size of one request, images included.")
    drain_s: float = option(
        limits.SHUTDOWN_DRAIN_S,
        seconds(zero=True),
        "How long running streams may continue after SIGTERM.",
        name="shutdown_drain_s",
    )
    log_format: _LogFormat | None = option(
        None, choice(_LogFormat), "How log lines are written; by default `text` on a terminal and `json` elsewhere."
    )
    metrics_models: tuple[str, ...] = option(
        (),
        names(f"at most {limits.METRICS_MODELS_MAX} names of models", r"[^\s,][^,]{0,99}"),
        "Models that metrics tell apart with a label; all others are `other`. Without it metrics name no model.",
    )
    otel_endpoint: str | None = option(
        None,
        text("a URL that begins with http:// or https://", r"https?://[\x21-\x7e]+"),
        "The OpenTelemetry collector, such as http://127.0.0.1:4318. Without it OTEL_EXPORTER_OTLP_ENDPOINT counts.",
    )
    otel_genai: _OtelGenai | None = option(
        None,
        choice(_OtelGenai),
        "The version of the GenAI conventions. Without it 1.41, or the one that OTEL_SEMCONV_STABILITY_OPT_IN names.",
    )
    otel_content: bool = option(False, ON_OFF, "Put messages, answers and tool results into spans.")
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    #: Wiretape's own keys. If there are any, every caller must present one.
    keys: tuple[Key, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=lambda: MappingProxyType({}))

    #: All secrets that must be masked.
    secrets: tuple[Secret, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        targets = [target.key for route in self.routes.values() for target in route.targets if target.key is not None]
        object.__setattr__(self, "secrets", (*(key.secret for key in self.keys), *targets))


_EMISSION: Final = (
    Setting(
        "profile",
        choice(Profile),
        "`strict` is a stream every official SDK reads, `transparent` the upstream's bytes, frame by frame.",
    ),
    Setting(
        "on_partial",
        choice(OnPartial),
        "How a client learns of a cut stream: `error` is an error, `warn` a length limit after a text that names the "
        "calls that were cut, `both` the text and the error.",
    ),
    Setting("tools", choice(Tools), "`held` shows a tool call only when complete, as `on_partial = warn` does."),
    Setting("tool_events", ON_OFF, "Emit frames that report the state of each tool call."),
    Setting("reasoning", choice(Reasoning), "The name under which reasoning is emitted."),
    Setting(
        "cumulative",
        ON_OFF,
        "The upstream repeats all text so far in each delta (DashScope); this cannot be detected.",
        shared=False,
    ),
    Setting("think", ON_OFF, "Turn a `<think>` block at the start of a response into reasoning."),
    Setting("emoji", ON_OFF, "Show an emoji for the tool in lifecycle frames, chosen by its name."),
)
_EGRESS: Final = (
    Setting(
        "egress_proxy",
        text("http:// or https:// with host and port, without user or password", _PROXY),
        "The proxy to all upstreams. HTTPS_PROXY is ignored.",
    ),
    Setting("egress_user", text("a name without a colon", r"[\x21-\x39\x3b-\x7e]+"), "The user of the egress proxy."),
    Setting("egress_password_env", _VARIABLE, "The variable that holds the password of the egress proxy."),
)


_NESTED: Final[Mapping[str, Any]] = {"keep": Keep, "upstream": UpstreamSettings}


def _settings(cls: Any, prefix: str = "") -> Iterator[Setting]:
    """Yield the settings of a dataclass and of the dataclasses inside it."""
    for part in fields(cls):
        if (setting := part.metadata.get("setting")) is not None:
            yield replace(setting, name=setting.name or part.name, place=prefix + part.name)
        elif part.name in _NESTED:
            yield from _settings(_NESTED[part.name], f"{prefix}{part.name}.")


#: Of the whole server: at the top of the file only.
SERVER: Final = (*_settings(Config), *_EGRESS)
#: Of one route; at the top of the file for all routes.
ROUTE: Final = (*(replace(setting, place=f"settings.{setting.name}") for setting in _EMISSION), *_settings(Route))
#: Of one upstream: at the top of the file for the default route, in a route, or in one of its fallbacks.
TARGET: Final = (
    Setting(
        "upstream",
        text("a URL that begins with https://, or with http:// for this machine", ".*"),
        "The base URL, as you would give it to a client. Its path and query are kept.",
    ),
    Setting(
        "key_env",
        _VARIABLE,
        "The variable that holds the key for this upstream, which replaces the caller's.",
        alias="upstream_key_env",
    ),
    Setting(
        "key_file",
        path("a path to a file that only its owner can read"),
        "The same from a file with mode 0600 or less.",
        alias="upstream_key_file",
    ),
    *_settings(Target),
)
#: The settings that are documented flags of `wiretape serve`. All others work as flags too.
FLAGS: Final = ("upstream", "host", "port", "data", "profile", "on_partial", "speaks")
