"""A read is the reader's own, whatever else is read meanwhile."""

import socket
import threading
from typing import Final

import pytest

from wiretape.proxy.limits import RECEIVE_BYTES_MAX
from wiretape.proxy.server.reading import received

_READS: Final = 2_000


def test_a_read_stays_what_it_was() -> None:
    here, there = socket.socketpair()
    with here, there:
        reads: list[bytes] = []
        for piece in (b"one", b"another", bytes(RECEIVE_BYTES_MAX)):
            there.sendall(piece)
            reads.append(received(here))
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            received(here)
        there.close()
        assert received(here) == b""
    assert reads == [b"one", b"another", bytes(RECEIVE_BYTES_MAX)]


def test_threads_do_not_see_what_others_read() -> None:
    """A proxy in a test's thread, and a client in the test: a read lets go of the interpreter."""
    wrong: list[int] = []

    def reads(mark: int) -> None:
        here, there = socket.socketpair()
        with here, there:
            for _ in range(_READS):
                there.sendall(bytes([mark]) * 16_000)
                if set(received(here)) != {mark}:
                    wrong.append(mark)

    threads = [threading.Thread(target=reads, args=(mark,)) for mark in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
