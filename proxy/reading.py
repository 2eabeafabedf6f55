"""One read of a socket, into one place for all of them."""

import socket
from typing import Final

from .limits import RECEIVE_BYTES_MAX

__all__ = ["received"]

_PLACE: Final = bytearray(RECEIVE_BYTES_MAX)
_SEEN: Final = memoryview(_PLACE)


def received(sock: socket.socket) -> bytes:
    """What is there; empty at the end, BlockingIOError where it would have to wait.

    `recv` takes 64 KB for each read and gives back what the read did not need. The few bytes that stay then lie between
    holes which no next read fits into: after ten minutes of mixed faults the process had 2 MB more.
    """
    return _SEEN[: sock.recv_into(_PLACE)].tobytes()
