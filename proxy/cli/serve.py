"""`wiretape serve`: print where it listens and what to paste, and serve until a signal stops it."""

from functools import partial
from typing import Final

import trio

from ..config.model import Config
from ..log import Log, stderr_fd
from ..serve import run
from .common import announce

__all__ = ["announcement", "serve_until_stopped"]

_CURL: Final = """\
curl -N {base}/chat/completions -H 'Content-Type: application/json' -H "Authorization: Bearer $OPENAI_API_KEY" \
-d '{{"model":"gpt-4o-mini","stream":true,"messages":[{{"role":"user","content":"Say hello"}}]}}'"""


def serve_until_stopped(config: Config) -> None:
    """Serve until SIGTERM or SIGINT, or raise what keeps the server from starting."""

    def on_ready(url: str) -> None:
        if not announce(announcement(url)):
            log.warn("not_announced", url=url, why="stdout has no reader")

    log = Log(stderr_fd(), secrets=config.secrets)
    try:
        trio.run(partial(run, config, log=log, on_ready=on_ready))
    finally:
        log.close()


def announcement(url: str) -> str:
    """Return three lines to copy: the base URL, the variable that most clients read, and a first request."""
    base = f"{url}/v1"
    return f"{base}\nexport OPENAI_BASE_URL={base}\n{_CURL.format(base=base)}\n"
