"""`wiretape serve`: says where it listens and what to paste, and serves until it is told to stop"""

from functools import partial
from typing import Final

import trio

from wiretape.events.core.errors import WiretapeError

from ..config.model import Config
from ..log import Log, stderr_fd
from ..security.headers import masked
from ..serve import run
from ..server.server import BindError
from .common import announce

__all__ = ["CannotListenError", "announcement", "serve_until_told"]

_CURL: Final = """\
curl -N {base}/chat/completions -H 'Content-Type: application/json' -H "Authorization: Bearer $OPENAI_API_KEY" \
-d '{{"model":"gpt-4o-mini","stream":true,"messages":[{{"role":"user","content":"Say hello"}}]}}'"""


class CannotListenError(WiretapeError):
    """The address is somebody else's, or none of this machine's."""


def serve_until_told(config: Config) -> None:
    """Until SIGTERM or SIGINT. Raises what keeps it from starting."""
    log = Log(stderr_fd(), mask=partial(_masked, config))
    try:
        trio.run(partial(run, config, log=log, on_ready=partial(_announce, log)))
    except BindError as error:
        raise CannotListenError(str(error)) from error
    finally:
        log.close()


def announcement(url: str) -> str:
    """Three lines to copy: the base URL, the variable that most clients read, and a first request."""
    base = f"{url}/v1"
    return f"{base}\nexport OPENAI_BASE_URL={base}\n{_CURL.format(base=base)}\n"


def _announce(log: Log, url: str) -> None:
    if not announce(announcement(url)):
        log.warn("not_announced", url=url, why="nobody reads stdout")


def _masked(config: Config, text: str) -> str:
    secrets = config.secrets
    if not secrets and text.isascii():
        return text
    return masked(text.encode("utf-8", "replace"), secrets).decode("utf-8", "replace")
