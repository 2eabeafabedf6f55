"""Where everything lies: what `make test-real` installed, and what a run writes."""

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["CACHE", "NODE", "NODE_MODULES", "OPENCODE", "PYTHONS", "ROOT", "RUN", "WIRETAPE", "environment"]

ROOT: Final = Path(__file__).parents[2]

#: Ignored by git. Without this folder llama-cpp-python is built again.
CACHE: Final = ROOT / ".cache/real"

#: Logs, tapes and homes of the last run.
RUN: Final = CACHE / "run"

NODE: Final = Path(__file__).parent / "node"
NODE_MODULES: Final = NODE / "node_modules"
OPENCODE: Final = NODE_MODULES / "opencode-linux-x64/bin/opencode"

#: One environment each, because they pin what the others pin otherwise.
PYTHONS: Final = {
    name: CACHE / name / "bin/python" for name in ("agents", "clients", "hermes", "litellm", "llama", "llama_index")
}

WIRETAPE: Final = Path(sys.executable).with_name("wiretape")


_NOWHERE: Final = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}


def environment(**more: str) -> dict[str, str]:
    """Return an environment with the caller's PATH and nothing else: no key, no home. All requests stay on
    loopback; what some clients also fetch (new versions, lists of models) fails at this proxy address.
    """
    home = RUN / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"} | _NOWHERE | more
