"""One log of several proxies in PostgreSQL: local tapes are shipped there, and other proxies read them.

Its modules need the extra `wiretape[postgres]`, so everything else imports them when it has a `store`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ...config.model import ConfigError

if TYPE_CHECKING:
    from .connection import Server

__all__ = ["server_at"]


def server_at(url: str) -> "Server":
    """Return the database of a store. Raises ConfigError without the extra or for a wrong URL."""
    try:
        from .connection import Server

        import_module("zstandard")
    except ImportError:
        raise ConfigError('store: needs the PostgreSQL driver: pip install "wiretape[postgres]"') from None
    return Server(url)
