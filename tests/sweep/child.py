"""`wiretape serve` with short periods, so that a scenario of a third of a second has rounds, expiry and new threads

python -m tests.sweep.child serve --upstream URL ...
"""

import os
import sys
from contextlib import suppress
from functools import partial
from typing import Final

from wiretape.proxy import serve
from wiretape.proxy.cli.main import main
from wiretape.proxy.relay import attempts
from wiretape.proxy.store.files import open_files

#: tests/sweep/faults.c begins to count here, after the imports.
MARK: Final = "/wiretape-fault-mark"

if __name__ == "__main__":
    for module, name, value in (
        (serve, "open_files", partial(open_files, round_s=0.04)),
        (serve, "EXPIRE_EVERY_S", 0.05),
        (serve, "EXPIRE_AGED_EVERY_S", 0.0),
        (sys.modules["trio._core._thread_cache"], "IDLE_TIMEOUT", 0.005),
        (attempts, "RETRY_FIRST_S", 0.02),
    ):
        setattr(module, name, value)
    with suppress(FileNotFoundError):
        os.open(MARK, os.O_RDONLY)
    main(sys.argv[1:])
