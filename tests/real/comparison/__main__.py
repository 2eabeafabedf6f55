"""`make replay-comparison`: run seven scenarios through every recorder, write docs/internals/replay-comparison.md."""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Final

import trio

from tests.replay.raw_client import Heard, ask
from tests.replay.scenarios import COOKIE, KEY, PASTED, SCENARIOS, body_of, chosen
from wiretape.replay.playback.server import listening

from ..places import RUN
from .paper import PLACE, Found, document
from .peers import NOBODY, PEERS, Peer

__all__ = ["main"]

#: Longer than any response; the longest scenario takes four seconds.
_ANSWER_S: Final = 30.0
#: A machine that is busy with others is given another try.
_TRIES: Final = 3
_LATE_MS: Final = 5.0
_FOLDER: Final = RUN / "comparison"
_SECRETS: Final = {"the caller's key": KEY, "the upstream's cookie": COOKIE, "a key in a prompt": PASTED}


async def _run(peers: Sequence[Peer], names: Sequence[str]) -> tuple[list[Found], dict[str, tuple[str, ...]]]:
    async with listening(chosen) as (url, _):
        upstream = int(url.removesuffix("/v1").rpartition(":")[2])
        direct = {name: await trio.to_thread.run_sync(ask, upstream, body_of(name)) for name in names}
        found: list[Found] = []
        secrets: dict[str, tuple[str, ...]] = {}
        for peer in peers:
            for name in names:
                found.append(await _tried(peer, name, direct[name], upstream))
                said = found[-1]
                sys.stdout.write(f"{peer.name} | {name} | {' | '.join(said.cells())}\n")
                sys.stdout.flush()
            if peer.needs.exists() and "text" in names:
                secrets[peer.name] = await _secrets(peer, upstream)
                sys.stdout.write(f"{peer.name} | keeps {', '.join(secrets[peer.name]) or 'no secret'}\n")
    return found, secrets


async def _tried(peer: Peer, name: str, direct: Heard, upstream: int) -> Found:
    """Once more where the number of reads differs, though they were not held back into one."""
    found = await _one(peer, name, direct, upstream)
    for _ in range(1, _TRIES):
        if found.again is None or len(found.again.reads) in (0, 1, len(direct.reads)):
            break
        found = await _one(peer, name, direct, upstream)
    return found


async def _one(peer: Peer, name: str, direct: Heard, upstream: int) -> Found:
    if not peer.needs.exists():
        return Found(peer, name, direct, None, None, "NOT INSTALLED")
    folder = _empty(peer, name)
    live: Heard | None = None
    again: Heard | None = None
    wrong, late = "", inf
    try:
        with trio.fail_after(_ANSWER_S):
            async with peer.record(upstream, folder) as asker:
                live = await asker(body_of(name), KEY)
        for _ in range(_TRIES):
            with trio.fail_after(_ANSWER_S):
                async with peer.replay(NOBODY, folder) as asker:
                    found = Found(peer, name, direct, live, await asker(body_of(name), KEY), "")
            again = found.again if again is None or _late(found) < late else again
            late = _late(Found(peer, name, direct, live, again, ""))
            if not late > _LATE_MS:
                break
    except Exception as error:  # noqa: BLE001 - the peer's failing is a result
        wrong = "nothing to play" if isinstance(error, RuntimeError) else type(error).__name__
    return Found(peer, name, direct, live, again, wrong)


async def _secrets(peer: Peer, upstream: int) -> tuple[str, ...]:
    """Those that are in what it wrote, one of them inside the prompt."""
    folder = _empty(peer, "secrets")
    with trio.move_on_after(_ANSWER_S):
        async with peer.record(upstream, folder) as asker:
            await asker(body_of("text", pasted=True), KEY)
    return await trio.to_thread.run_sync(_kept, folder)


def _late(found: Found) -> float:
    """Of the worst read; nothing where reads cannot be compared."""
    return max(found.errors_ms(), default=0.0)


def _empty(peer: Peer, name: str) -> Path:
    folder = _FOLDER / peer.name.translate({ord(each): "-" for each in " `,"}) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _kept(folder: Path) -> tuple[str, ...]:
    places = [path for path in folder.rglob("*") if path.is_file() and not {"conf", "tmp"} & set(path.parts)]
    written = b"".join(path.read_bytes() for path in places)
    return tuple(name for name, secret in _SECRETS.items() if secret.encode() in written)


def main() -> int:
    """The exit status. The document is written by a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.comparison", description=__doc__)
    parser.add_argument("--peer", action="append", default=[], help="only those whose name holds this")
    parser.add_argument("--scenario", action="append", default=[], help="only these")
    asked = parser.parse_args()
    peers = [peer for peer in PEERS if not asked.peer or any(each.lower() in peer.name.lower() for each in asked.peer)]
    names = [name for name in SCENARIOS if not asked.scenario or name in asked.scenario]
    RUN.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found, secrets = trio.run(_run, peers, names)
    if len(peers) == len(PEERS) and len(names) == len(SCENARIOS):
        PLACE.write_text(document(found, secrets), encoding="utf-8")
    sys.stdout.write(f"{len(found)} cells, {time.monotonic() - began:.0f} s\n")
    ours = [each for each in found if each.peer is PEERS[0]]
    return 0 if all(each.whole for each in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
