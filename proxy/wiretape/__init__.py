"""The package `wiretape` itself: its version and its entry point."""

__version__ = "0.1.0"
