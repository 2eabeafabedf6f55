"""What is free goes back, though what is used lies between."""

import subprocess
import sys
from pathlib import Path

import pytest

_CHILD = """
import trio
from wiretape.proxy.heap import give_back, one_heap
from wiretape.proxy.relay.registry import resident_bytes

async def main():
    one_heap()
    blocks = [bytes(1_000) for _ in range(40_000)]
    kept = blocks[::50]
    blocks.clear()
    before = resident_bytes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_back, 0.01)
        with trio.move_on_after(20):
            while resident_bytes() > before - 20e6:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    print(before - resident_bytes(), len(kept))

trio.run(main)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is counted where /proc is")
def test_what_is_free_in_pieces_goes_back() -> None:
    """40 MB were used, of which each fiftieth block stays."""
    said = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, check=True, timeout=60).stdout.split()
    assert int(said[0]) > 20e6, "it stays free, and ours"
