"""What systemd gives to a service and hears from it: listening sockets (sd_listen_fds) and states (sd_notify)."""

import os
import socket
from contextlib import suppress
from typing import Final

from .server import BindError, prepared

__all__ = ["inherited", "notify"]

_FIRST_FD: Final = 3


def inherited() -> list[socket.socket]:
    """Return the listening sockets that a socket unit opened for this process; without one an empty list."""
    count, process = os.environ.pop("LISTEN_FDS", "0"), os.environ.pop("LISTEN_PID", "")
    if process != str(os.getpid()):
        return []
    if not count.isdecimal():
        raise BindError("LISTEN_FDS must be the number of sockets")
    sockets = [socket.socket(fileno=fd) for fd in range(_FIRST_FD, _FIRST_FD + int(count))]
    if any(sock.family not in (socket.AF_INET, socket.AF_INET6) for sock in sockets):
        raise BindError("the socket unit may only listen on TCP ports (ListenStream=8787)")
    return [prepared(sock) for sock in sockets]


def notify(state: str) -> None:
    """Report a state such as READY=1, if a service manager wants to know."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
