"""What a user may choose, as frozen values; config_load.py reads them, config_table.py names each of them"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.settings import Settings

from ..http_headers import Header
from ..limits import (
    ATTEMPTS,
    CLIENT_DRAIN_S,
    CLIENT_KEEP_S,
    CONNECT_TIMEOUT_S,
    FINISH_GRACE_S,
    FIRST_BYTE_TIMEOUT_S,
    IDLE_CONNECTION_TIMEOUT_S,
    IDLE_CONNECTIONS_MAX,
    IDLE_TIMEOUT_S,
    KEEPALIVE_S,
    REQUEST_BYTES_MAX,
    SHUTDOWN_DRAIN_S,
    STREAMS_MAX,
    WRITE_TIMEOUT_S,
)
from .secrets import Key, Secret

__all__ = [
    "Config",
    "ConfigError",
    "Durability",
    "Egress",
    "History",
    "Keep",
    "KeyHeader",
    "OnClientGone",
    "OnLogFailure",
    "Requests",
    "Route",
    "Target",
    "UpstreamSettings",
]

Durability = Literal["process", "disk", "none"]
Requests = Literal["full", "hash"]
OnLogFailure = Literal["stop", "serve"]
OnClientGone = Literal["cancel", "drain", "keep"]
History = Literal["off", "warn", "repair"]
KeyHeader = Literal["authorization", "api-key", "x-api-key"]


class ConfigError(WiretapeError):
    """What was configured cannot be used: one line that names the place, the setting and what is allowed.

    It never holds a value: what stands in the wrong place may be a key.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One upstream."""

    name: str
    #: Base URL; its path takes the place of our prefix, its query goes before the caller's.
    url: str
    #: Put in instead of whatever the caller presented.
    key: Secret | None = None
    #: Where it is put; Azure takes it under a name of its own.
    key_header: KeyHeader = "authorization"
    #: Without a key of its own: whether the caller's passes. Not to another provider that stands in for the first.
    caller_key: bool = True
    #: http:// to another machine was asked for.
    allow_plain_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One prefix and what stands behind it. The default route has no name: it is /v1, the others are /<name>/v1."""

    name: str
    #: The first, then those that stand in for it, in order.
    targets: tuple[Target, ...]
    settings: Settings = field(default_factory=Settings)
    include_usage: bool = False
    attempts: int = ATTEMPTS
    first_byte_s: float = FIRST_BYTE_TIMEOUT_S
    idle_s: float = IDLE_TIMEOUT_S
    keepalive_s: float = KEEPALIVE_S
    finish_grace_s: float = FINISH_GRACE_S
    on_client_gone: OnClientGone = "cancel"
    drain_s: float = CLIENT_DRAIN_S
    keep_s: float = CLIENT_KEEP_S
    #: An answer that is no stream becomes one (U12); else it is a 502.
    synthesise: bool = True
    #: Exchanges that are no dialect's are taped too.
    tape: bool = True
    #: What is done about markers and warnings of ours in the history that a client sends back.
    history: History = "warn"
    #: The upstream is hermes-agent: its own events are believed (U49).
    hermes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How long and how much is kept; None is unlimited."""

    #: What a person remembers having done.
    days: int | None = 7
    #: What nobody misses on a disk.
    bytes: int | None = 5 * 1024**3


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

    connect_timeout_s: float = CONNECT_TIMEOUT_S
    write_timeout_s: float = WRITE_TIMEOUT_S
    idle_connections_max: int = IDLE_CONNECTIONS_MAX
    idle_connection_timeout_s: float = IDLE_CONNECTION_TIMEOUT_S
    ca_file: Path | None = None
    egress: Egress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything; what is not given has its default from config_table.py."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8787
    durability: Durability = "process"
    requests: Requests = "full"
    on_log_failure: OnLogFailure = "stop"
    keep: Keep = field(default_factory=Keep)
    #: Wiretape's own keys; with any of them, every caller presents one.
    keys: tuple[Key, ...] = ()
    #: Names under which this server may be called, besides those of this machine.
    hosts: tuple[str, ...] = ()
    #: Origins of pages that may call it, besides its own.
    origins: tuple[str, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=lambda: MappingProxyType({}))
    streams_max: int = STREAMS_MAX
    #: Of this process; None where whoever runs it has no figure.
    memory_max_bytes: int | None = None
    body_bytes_max: int = REQUEST_BYTES_MAX
    #: At SIGTERM: how long running streams may go on.
    drain_s: float = SHUTDOWN_DRAIN_S
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All that must never be told, for `headers.masked`."""
        targets = (target for route in self.routes.values() for target in route.targets)
        return (*(key.secret for key in self.keys), *(target.key for target in targets if target.key is not None))
