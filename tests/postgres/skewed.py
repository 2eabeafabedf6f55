"""`wiretape` on a machine whose clock is set wrong: python -m tests.postgres.skewed SECONDS serve ..."""

import sys
import time
from typing import Final

from wiretape.proxy.cli.main import main

_REAL: Final = time.time, time.time_ns

if __name__ == "__main__":
    seconds = float(sys.argv[1])
    setattr(time, "time", lambda: _REAL[0]() + seconds)  # noqa: B010 - type checkers allow no assignment
    setattr(time, "time_ns", lambda: _REAL[1]() + int(seconds * 1e9))  # noqa: B010
    main(sys.argv[2:])
