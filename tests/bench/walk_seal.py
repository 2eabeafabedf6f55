"""Calls and files of our own functions when a tape of 28 records is sealed: `python -m tests.bench.walk_seal`"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.replay.made import stream
from wiretape.events.core.json_text import dumps
from wiretape.replay.playback.script import event_stream
from wiretape.replay.seal import seal
from wiretape.replay.sealed.sealed import expected

_ROOT: Final = Path(__file__).parents[2].resolve()
_TOP: Final = 20


def walked(*, fold: bool = True) -> tuple[int, Counter[tuple[str, str]]]:
    """Return how many records the tape has, and the calls of each function by file.

    Without `fold`, leave out the fold line, which runs the emitter over the records.
    """
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": f"word{at} "}}]} for at in range(20)
    ]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    frames = [b"data: %b\n\n" % dumps(value) for value in chunks]
    records = stream(event_stream([*frames, b"data: [DONE]\n\n"]))
    calls: Counter[tuple[str, str]] = Counter()
    places: dict[str, str] = {}
    folding = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal folding
        if frame.f_code is expected.__code__ and event in ("call", "return") and not fold:
            folding = event == "call"
        if event == "call" and not folding:
            code = frame.f_code
            if code.co_filename not in places:
                path = Path(code.co_filename).resolve()
                ours = path.is_relative_to(_ROOT) and path.parts[len(_ROOT.parts)] in ("events", "proxy", "replay")
                places[code.co_filename] = str(path.relative_to(_ROOT)) if ours else ""
            if place := places[code.co_filename]:
                calls[place, code.co_qualname] += 1

    seal([records])  # caches and imports
    sys.setprofile(profile)
    try:
        seal([records])
    finally:
        sys.setprofile(None)
    return len(records), calls


def _main() -> None:
    records, calls = walked()
    files = Counter(place for (place, _), count in calls.items() for _ in range(count))
    print(f"{records} records: {calls.total()} calls of {len(calls)} functions in {len(files)} files")
    print(f"without the fold line: {len({place for place, _ in walked(fold=False)[1]})} files")
    print(f"replay/ alone: {sum(place.startswith('replay/') for place in files)} files")
    for place, count in files.most_common():
        print(f"{count:7} {place}")
    for (place, function), count in calls.most_common(_TOP):
        print(f"{count:7} {place} {function}")


if __name__ == "__main__":
    _main()
