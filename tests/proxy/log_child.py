"""A process that logs to a full, closed or missing stderr and reports on stdout how it went."""

import json
import os
import sys
import time

from wiretape.proxy.log import Log, stderr_fd


def main(lines: int) -> None:
    """Log so many lines as fast as possible."""
    fd = stderr_fd()
    reused = os.open(os.devnull, os.O_WRONLY)
    log = Log(fd, human=False)
    slowest = 0.0
    for number in range(lines):
        began = time.perf_counter()
        log.info("line", number=number, text="x" * 200)
        slowest = max(slowest, time.perf_counter() - began)
    began = time.perf_counter()
    log.close()
    closing = time.perf_counter() - began
    print(json.dumps({"fd": fd, "reused": reused, "slowest": slowest, "closing": closing, "dropped": log.dropped}))  # noqa: T201
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
