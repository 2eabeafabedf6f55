"""From wiretape.toml, the environment and the flags to one Config, and where each value came from"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .config import Config, ConfigError

__all__ = ["Loaded", "load"]


class Loaded(NamedTuple):
    """The configuration, and for each setting (`port`, `routes.azure.upstream`) the layer that gave it."""

    config: Config
    origins: Mapping[str, str]


def load(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Loaded:
    """Flags over `WIRETAPE_*` over wiretape.toml over the defaults; raises ConfigError."""
    raise ConfigError("not read yet")
