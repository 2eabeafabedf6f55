"""What every stream of this process shares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..config.model import Config
from ..server.reaper import Reaper
from ..store.linking import Running
from ..store.store import Store
from ..upstream.transport import UpstreamTransport

if TYPE_CHECKING:
    from .registry import Ended

__all__ = ["Log", "Services"]


class Log(Protocol):
    """One line for what a person should know; no field may hold a credential."""

    def info(self, event: str, /, **fields: object) -> None: ...

    def warn(self, event: str, /, **fields: object) -> None: ...

    def error(self, event: str, /, **fields: object) -> None: ...

    def ended(self, ended: "Ended") -> None: ...

    @property
    def dropped(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Made once, at the start."""

    config: Config
    store: Store
    transport: UpstreamTransport
    reaper: Reaper
    log: Log
    #: Seconds since 1970; durations are trio's.
    wall: Callable[[], float]
    new_id: Callable[[], str]
    #: Told how long each batch took to be written.
    wrote: Callable[[float], None]
    #: Routes and models whose upstream refused to stream, so that the next request does not ask.
    unstreamed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    #: Of streams that run.
    answers: Running = field(default_factory=Running)
