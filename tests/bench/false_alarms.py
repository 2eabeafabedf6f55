"""What the search for secrets takes for one in captured provider streams: `python -m tests.bench.false_alarms`

Their publishers masked the keys in them, so every finding is a false alarm. Prints each, and fails if there are any.
"""

from collections import Counter

from tests.replay.captured import recorded
from tests.support.corpus import load
from wiretape.replay.redaction.redact import findings


def false_alarms() -> Counter[tuple[str, str]]:
    """Return how often each vendor is found in each capture."""
    alarms: Counter[tuple[str, str]] = Counter()
    for protocol in ("chat", "responses", "anthropic"):
        for seed, capture in enumerate(load(protocol)):
            for found in findings([recorded(capture.body, protocol, seed)]):
                alarms[found.vendor, f"{capture.id} {found.where}"] += 1
    return alarms


def _main() -> None:
    alarms = false_alarms()
    for (vendor, where), count in alarms.most_common():
        print(f"{count:5} {vendor} in {where}")
    captures = sum(len(load(each)) for each in ("chat", "responses", "anthropic"))
    print(f"{alarms.total()} false alarms in {captures} captures")
    raise SystemExit(bool(alarms))


if __name__ == "__main__":
    _main()
