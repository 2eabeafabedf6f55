"""Every setting by name: what is allowed, where it goes in config.py, and why; docs/configuration.md is drawn from it

`place` is the path of attributes from Config, Route or Target to the value; a default stands there alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from wiretape.events.core.settings import OnPartial, Profile, Reasoning, Tools

from ..limits import ATTEMPTS_MAX, PORT_MAX
from .kinds import Choice, Count, Kind, Names, OnOff, PathTo, Seconds, Size, Text
from .model import Durability, History, KeyHeader, OnClientGone, OnLogFailure, Requests

__all__ = ["FLAGS", "PREFIX", "ROUTE", "SERVER", "TARGET", "Setting", "with_values"]

#: Of environment variables.
PREFIX: Final = "WIRETAPE_"

#: Those that `wiretape serve` has as flags: what differs from one start to the next. `load` takes any of them.
FLAGS: Final = ("upstream", "host", "port", "data", "profile", "on_partial")

_UNBOUNDED: Final = "unlimited"
_VARIABLE: Final = Text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_HOST: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]+\]"
_ORIGIN: Final = r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row."""

    #: In wiretape.toml.
    name: str
    kind: Kind
    reason: str
    place: str = ""
    #: A word of its own for environment and flag, where the name alone would say something else there.
    alias: str = ""
    #: Of a route: what stands at the top of the file, in the environment or in a flag counts for every route. Else for
    #: the default one only, because it says something about one upstream.
    shared: bool = True

    @property
    def environment(self) -> str:
        """The variable."""
        return PREFIX + (self.alias or self.name).upper()

    @property
    def flag(self) -> str:
        """The option of `wiretape serve`."""
        return "--" + (self.alias or self.name).replace("_", "-")


def _words(literal: object) -> Choice:
    return Choice(get_args(literal))


#: Of the whole server; at the top of the file only.
SERVER: Final[tuple[Setting, ...]] = (
    Setting(
        name="host",
        place="host",
        kind=Text("a name or address of this machine", _HOST + "|[0-9A-Fa-f:.]+"),
        reason="Where to listen. Any other than this machine's own loopback needs a key of Wiretape's.",
    ),
    Setting(name="port", place="port", kind=Count(0, PORT_MAX), reason="0 takes a free one."),
    Setting(
        name="data",
        place="data",
        kind=PathTo("a path to a folder"),
        reason="Where the tapes lie; by default in the platform's folder for data.",
    ),
    Setting(
        name="durability",
        place="durability",
        kind=_words(Durability),
        reason="`process` survives the end of this process and loses at most a second to a power cut, `disk` delivers "
        "only what is durable, `none` keeps tapes in memory.",
    ),
    Setting(
        name="requests",
        place="requests",
        kind=_words(Requests),
        reason="`hash` keeps only length, hash and a few facts of what was asked.",
    ),
    Setting(
        name="on_log_failure",
        place="on_log_failure",
        kind=_words(OnLogFailure),
        reason="When the disk fails: `stop` ends streams, `serve` goes on and marks them as untaped.",
    ),
    Setting(
        name="keep_days",
        place="keep.days",
        kind=Count(0, 36_500, _UNBOUNDED),
        reason="Tapes of older days go; what a person remembers having done.",
    ),
    Setting(
        name="keep_bytes",
        place="keep.bytes",
        kind=Size(0, _UNBOUNDED),
        reason="Beyond it the oldest tapes go; what nobody misses on a disk.",
    ),
    Setting(
        name="hosts",
        place="hosts",
        kind=Names("host names without ports", _HOST),
        reason="Names by which clients call this server, besides `localhost`, `127.0.0.1`, `[::1]` and `host`; any "
        "other is refused, because a page may give its own name to this machine (DNS rebinding).",
    ),
    Setting(
        name="origins",
        place="origins",
        kind=Names("origins like `app://name` or `https://name:port`", _ORIGIN),
        reason="Desktop applications and extensions whose requests are let through, besides this server's own pages. "
        "No answer has a CORS header and a preflight is refused, so a browser's page of another origin can neither "
        "read an answer nor send JSON.",
    ),
    Setting(
        name="streams_max",
        place="streams_max",
        kind=Count(1, 1_000_000),
        reason="At once; each holds three descriptors, and the server takes no more than those allow.",
    ),
    Setting(
        name="memory_max_bytes",
        place="memory_max_bytes",
        kind=Size(64 * 1024**2, _UNBOUNDED),
        reason="What this process may take, such as a container's limit: before it, new streams are turned away.",
    ),
    Setting(
        name="body_bytes_max",
        place="body_bytes_max",
        kind=Size(1),
        reason="Of one request; images come inside it.",
    ),
    Setting(
        name="shutdown_drain_s",
        place="drain_s",
        kind=Seconds(zero=True),
        reason="How long running streams may go on after SIGTERM.",
    ),
    Setting(
        name="connect_timeout_s",
        place="upstream.connect_timeout_s",
        kind=Seconds(),
        reason="To an upstream: name, connection, egress proxy and TLS together.",
    ),
    Setting(
        name="write_timeout_s",
        place="upstream.write_timeout_s",
        kind=Seconds(),
        reason="How long an upstream may take nothing more of a request.",
    ),
    Setting(
        name="ca_file",
        place="upstream.ca_file",
        kind=PathTo("a path to a file of certificates in PEM"),
        reason="Whom to trust instead of the system's list. There is no switch that trusts everybody.",
    ),
    Setting(
        name="egress_proxy",
        kind=Text(
            "http:// or https:// with host and port, without user or password",
            r"https?://[A-Za-z0-9._-]+:[0-9]{1,5}/?|https?://\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}/?",
        ),
        reason="The proxy to all upstreams; the environment's own HTTPS_PROXY is not looked at.",
    ),
    Setting(
        name="egress_user",
        kind=Text("a name without a colon", r"[\x21-\x39\x3b-\x7e]+"),
        reason="Whom the egress proxy knows.",
    ),
    Setting(
        name="egress_password_env",
        kind=_VARIABLE,
        reason="The variable that holds the password for it.",
    ),
)

#: Of one route; at the top of the file for all of them.
ROUTE: Final[tuple[Setting, ...]] = (
    Setting(
        name="profile",
        place="settings.profile",
        kind=_words(Profile),
        reason="`strict` is a stream that every official SDK reads, `transparent` the upstream's bytes untouched; of "
        "an event stream frame by frame, so half of one waits for its rest.",
    ),
    Setting(
        name="on_partial",
        place="settings.on_partial",
        kind=_words(OnPartial),
        reason="How a client hears of a cut stream: an error it raises, a text a person reads, or both.",
    ),
    Setting(
        name="tools",
        place="settings.tools",
        kind=_words(Tools),
        reason="`held` shows a tool call only when it is complete; always so with `on_partial = warn`.",
    ),
    Setting(
        name="tool_events",
        place="settings.tool_events",
        kind=OnOff(),
        reason="Frames that say what became of each tool call.",
    ),
    Setting(
        name="reasoning",
        place="settings.reasoning",
        kind=_words(Reasoning),
        reason="Under which name reasoning is emitted.",
    ),
    Setting(
        name="cumulative",
        place="settings.cumulative",
        kind=OnOff(),
        shared=False,
        reason="The upstream repeats all text so far in each delta (DashScope); only you can tell that from chance.",
    ),
    Setting(
        name="think",
        place="settings.think",
        kind=OnOff(),
        reason="A `<think>` block at the head of an answer becomes reasoning.",
    ),
    Setting(
        name="include_usage",
        place="include_usage",
        kind=OnOff(),
        reason="Ask the upstream for usage where the client did not, for the tape; the client does not see it.",
    ),
    Setting(
        name="attempts",
        place="attempts",
        kind=Count(1, ATTEMPTS_MAX),
        reason="Of one request, as long as nothing was delivered.",
    ),
    Setting(
        name="first_byte_s",
        place="first_byte_s",
        kind=Seconds(),
        reason="From the request to the first frame; reasoning models are silent for minutes.",
    ),
    Setting(
        name="idle_s",
        place="idle_s",
        kind=Seconds(),
        reason="Silence inside a stream, pings not counted.",
    ),
    Setting(
        name="keepalive_s",
        place="keepalive_s",
        kind=Seconds(),
        reason="Silence towards the client, then a comment; load balancers close after 60 s.",
    ),
    Setting(
        name="finish_grace_s",
        place="finish_grace_s",
        kind=Seconds(zero=True),
        reason="After the finish, for usage and the terminator.",
    ),
    Setting(
        name="on_client_gone",
        place="on_client_gone",
        kind=_words(OnClientGone),
        reason="When the last reader left: end the upstream's work, let it end for its usage, or wait for a reader.",
    ),
    Setting(name="drain_s", place="drain_s", kind=Seconds(zero=True), reason="How long with `drain`."),
    Setting(name="keep_s", place="keep_s", kind=Seconds(zero=True), reason="How long with `keep`."),
    Setting(
        name="synthesise",
        place="synthesise",
        kind=OnOff(),
        reason="An upstream's answer that is no stream becomes one where a stream was asked for; else it is a 502.",
    ),
    Setting(
        name="tape",
        place="tape",
        kind=OnOff(),
        reason="Record what speaks no dialect too, such as the list of models. Off, the id of such an exchange stands "
        "in its answer and in the log, and nothing can be asked of it.",
    ),
    Setting(
        name="emoji",
        place="settings.emoji",
        kind=OnOff(),
        reason="Lifecycle frames show a picture of their tool, by the words of its name.",
    ),
    Setting(
        name="history",
        place="history",
        kind=_words(History),
        reason="Progress markers and our own warnings inside the assistant's words that a client sends back, which "
        "models begin to imitate: `warn` notes and counts them, `repair` takes them out before they go upstream.",
    ),
    Setting(
        name="hermes",
        place="hermes",
        kind=OnOff(),
        shared=False,
        reason="The upstream is hermes-agent: what it says of its own tools and of how it ended is believed.",
    ),
)

#: Of one upstream: at the top of the file for the default route, in a route, or in one of its fallbacks.
TARGET: Final[tuple[Setting, ...]] = (
    Setting(
        name="upstream",
        kind=Text("a URL that begins with https://, or with http:// for this machine", ".*"),
        reason="The base URL, as a client would be given it; its path and query are kept.",
    ),
    Setting(
        name="key_env",
        alias="upstream_key_env",
        kind=_VARIABLE,
        reason="The variable that holds the key for this upstream, put in instead of the caller's.",
    ),
    Setting(
        name="key_file",
        alias="upstream_key_file",
        kind=PathTo("a path to a file that only its owner can read"),
        reason="The same from a file with mode 0600 or less.",
    ),
    Setting(
        name="key_header",
        alias="upstream_key_header",
        place="key_header",
        kind=_words(KeyHeader),
        reason="Where that key goes; `api-key` by itself on Azure's hosts.",
    ),
    Setting(
        name="allow_plain_http",
        kind=OnOff(),
        reason="Take http:// to another machine, where everybody on the way reads keys and answers.",
    ),
    Setting(
        name="caller_key",
        place="caller_key",
        kind=OnOff(),
        reason="Without a key of its own, pass the caller's. Off for a fallback on another host: it is not its key.",
    ),
)


def with_values(base: Any, values: Mapping[str, Any]) -> Any:
    """A Config, Route or Target with each value at its place."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for place, value in values.items():
        head, dot, rest = place.partition(".")
        if dot:
            inner.setdefault(head, {})[rest] = value
        else:
            own[head] = value
    for head, parts in inner.items():
        own[head] = with_values(getattr(base, head), parts)
    return replace(base, **own)
