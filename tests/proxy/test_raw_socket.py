"""Reads of a raw socket are independent of each other."""

import socket
import threading

import pytest
import trio

from wiretape.proxy.limits import RECEIVE_BYTES_MAX
from wiretape.proxy.raw_socket import raw_socket, receive_now


def test_trio_keeps_its_socket_under_the_private_name_used_here() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        assert raw_socket(trio.SocketStream(trio.socket.from_stdlib_socket(here))) is here


def test_later_reads_do_not_change_earlier_ones() -> None:
    here, there = socket.socketpair()
    with here, there:
        reads: list[bytes] = []
        for piece in (b"one", b"another", bytes(RECEIVE_BYTES_MAX)):
            there.sendall(piece)
            reads.append(receive_now(here))
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            receive_now(here)
        there.close()
        assert receive_now(here) == b""
    assert reads == [b"one", b"another", bytes(RECEIVE_BYTES_MAX)]


def test_threads_do_not_share_reads() -> None:
    wrong: list[int] = []

    def reads(mark: int) -> None:
        here, there = socket.socketpair()
        with here, there:
            for _ in range(2_000):
                there.sendall(bytes([mark]) * 16_000)
                if set(receive_now(here)) != {mark}:
                    wrong.append(mark)

    threads = [threading.Thread(target=reads, args=(mark,)) for mark in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
