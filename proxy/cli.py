"""The command line: every verb, and the one place that joins proxy and replay; what a verb needs, it imports itself"""

__all__ = ["main"]


def main() -> None:
    """What `wiretape` runs."""
    raise SystemExit(3)
