"""The standard library's socket under trio's, for reads and sends that need not wait.

`recv` allocates 64 KB for each read and gives back what the read did not need, so that the few bytes that are kept lie
between holes in the heap: 4 MB of a process at rest after seven minutes of mixed faults. Reads into one buffer do not.
"""

import socket
import threading
from typing import Any, Final

import trio

from .limits import RECEIVE_BYTES_MAX

__all__ = ["raw_socket", "receive_now"]


class _Buffer(threading.local):
    """A thread's own buffer: a read releases the GIL, and a test may run a proxy in another thread."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BYTES_MAX))


_BUFFER: Final = _Buffer()


def raw_socket(stream: trio.SocketStream) -> Any:
    """Return the socket, which trio keeps under a private name; a contract test pins it."""
    return getattr(stream.socket, "_sock")  # noqa: B009 - private, and another thing in a test's stream


def receive_now(sock: socket.socket) -> bytes:
    """Return what is there, empty at the end; raise BlockingIOError if nothing is."""
    view = _BUFFER.view
    return view[: sock.recv_into(view)].tobytes()
