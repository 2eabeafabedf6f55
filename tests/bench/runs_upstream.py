"""An upstream that costs little: `python -m tests.bench.runs_upstream PORT STREAMS FRAMES PERIOD_MS`.

Once so many requests are there, each is answered with so many frames, one in each period, spread over it. A frame
carries the time at which it is written (CLOCK_MONOTONIC, which all processes of a machine share).
"""

import select
import socket
import sys
import time
from collections import deque
from typing import Final

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_CHUNK: Final = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{%b},"finish_reason":%b}]%b}\n\n'
)
_USAGE: Final = b',"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
_FIRST: Final = _CHUNK % (b'"role":"assistant","content":""', b"null", b"")
_LAST: Final = _CHUNK % (b"", b'"stop"', _USAGE) + b"data: [DONE]\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _frame(now: float) -> bytes:
    return _chunk(_CHUNK % (b'"content":"%.6f "' % now, b"null", b""))


def _asked(peer: socket.socket, held: dict[socket.socket, bytes]) -> bool:
    """Return whether the request of this connection is complete; raise OSError if it left."""
    data = peer.recv(65536)
    if not data:
        raise ConnectionResetError
    held[peer] = held.get(peer, b"") + data
    head, mark, body = held[peer].partition(b"\r\n\r\n")
    if not mark or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0):
        return False
    held[peer] = b""
    return True


def main(port: int, streams: int, frames: int, period_s: float) -> None:
    """Serve until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=4_096)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    peers: dict[int, socket.socket] = {}
    held: dict[socket.socket, bytes] = {}
    #: (when, to whom, how many are left): all periods are equal, so the first is always due first.
    due: deque[tuple[float, socket.socket, int]] = deque()
    gathered: list[socket.socket] = []
    while True:
        for number, _ in poll.poll(max(0.0, due[0][0] - time.monotonic()) if due else None):
            if number == listener.fileno():
                peer, _address = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = peer
                poll.register(peer, select.EPOLLIN)
                continue
            peer = peers[number]
            try:
                if _asked(peer, held):
                    peer.sendall(_HEAD + _chunk(_FIRST))
                    gathered.append(peer)
            except OSError:
                poll.unregister(number)
                del peers[number]
                peer.close()
        now = time.monotonic()
        if len(gathered) >= streams:
            due += [(now + period_s * (1 + at / streams), peer, frames) for at, peer in enumerate(gathered)]
            gathered.clear()
        while due and due[0][0] <= now:
            at, peer, left = due.popleft()
            try:
                if left:
                    peer.sendall(_frame(time.monotonic()))
                    due.append((at + period_s, peer, left - 1))
                else:
                    peer.sendall(_chunk(_LAST) + b"0\r\n\r\n")
            except OSError:
                continue


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) / 1_000)
