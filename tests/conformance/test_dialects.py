"""Outside judges over what we send in every pair of dialects: order, published types, helpers, and a plain reader."""

import pytest

from tests.laws.variants import FULL
from tests.support.corpus import PROTOCOLS, load, needs_corpus, sampled

from .cases import made
from .emitted import PAIRS, emitted
from .helpers import read_in_python
from .judged import all_helper_faults, chat_faults, faults
from .order import CHECKERS

SHOWN_MAX = 5
PARTS = 4


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("upstream", "client"), PAIRS, ids=[" to ".join(pair) for pair in PAIRS])
def test_emitted_streams_have_no_fault(upstream: str, client: str, part: int) -> None:
    """Whole and cut: all in `make laws`, one of twelve in the default suite."""
    found: list[str] = []
    for number, stream in [*sampled(PROTOCOLS[upstream], one_in=48)][part::PARTS]:
        for name, one in made(number, stream, upstream, client, cuts=4 if FULL else 1):
            found += [f"{name}: {each}" for each in faults(one)]
        if client == "chat":
            found += [f"{stream.id}: {each}" for each in chat_faults(stream, upstream)]
    assert not found, "\n".join([f"{len(found)} faults", *found[:SHOWN_MAX]])


#: An alteration that every helper notices: another id at first, or no first frame.
ALTERATIONS = {"responses": (b'"id":"resp_', b'"id":"other_'), "messages": (b'"message_start"', b'"message_begin"')}


@needs_corpus
@pytest.mark.parametrize("dialect", ALTERATIONS)
def test_helpers_notice_altered_streams(dialect: str) -> None:
    """Or the test above would prove nothing."""
    made_right = [emitted(stream, dialect, dialect) for stream in load(PROTOCOLS[dialect])[:40]]
    speaking = [right for right in made_right if right.answer.text and ALTERATIONS[dialect][0] in right.sent]
    assert speaking
    for right in speaking:
        altered = right._replace(sent=right.sent.replace(*ALTERATIONS[dialect], 1))
        assert all_helper_faults(altered, read_in_python(dialect, altered.sent)), right.id


@needs_corpus
@pytest.mark.parametrize("dialect", ALTERATIONS)
def test_order_checkers_find_faults_in_streams_as_they_came(dialect: str) -> None:
    assert any(CHECKERS[dialect](stream.body) for stream in load(PROTOCOLS[dialect]))
