"""`wiretape` and `python -m wiretape`."""

import os
import sys
from typing import NoReturn

from wiretape.proxy.cli.health import check, quick_address

__all__ = ["main"]


def main() -> NoReturn:
    """Run `wiretape` and exit. `health` imports nothing of the other verbs where it can."""
    if sys.argv[1:2] == ["health"] and (address := quick_address(sys.argv[2:], os.environ)):
        sys.exit(check(*address, ready=len(sys.argv) > 2))
    from wiretape.proxy.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
