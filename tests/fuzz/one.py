"""One target under atheris, for ever or as libFuzzer's flags say: `python -m tests.fuzz.one stream [flags] folders`."""

import importlib
import sys
from typing import Any


def main() -> None:
    """The last thing is libFuzzer, which ends the process itself."""
    atheris: Any = importlib.import_module("atheris")  # it has no types
    with atheris.instrument_imports(include=["wiretape"]):
        targets = importlib.import_module("tests.fuzz.targets")
    target = targets.TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
