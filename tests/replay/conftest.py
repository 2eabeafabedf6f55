"""Modules that must be imported before any test runs pytest in this process."""

import httpcore

from wiretape.replay.pytest_plugin import tape

#: An inner run drops modules that it imported first. A second copy of httpcore would raise errors unknown to httpx.
IMPORTED = (httpcore, tape)
