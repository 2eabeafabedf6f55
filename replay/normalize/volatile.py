"""What is another one each time it is looked at, inside a text: times, random ids, temporary places, durations

Only for what a machine wrote: `settled` for results of tools, `dated` for what a client tells the model of its
surroundings. Both are sure of what they take out. `loosened` takes what may be content as well, so whoever relies on it
has to tell.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import is_list, is_object

__all__ = ["LOOSE", "PATTERNS", "dated", "loosened", "settled"]

_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY: Final = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
_CLOCK: Final = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm])?(?: ?(?:Z\b|[+-]\d{2}:?\d{2}|UTC|GMT))?"
_ISO: Final = r"(?<!\d)(?<!\d[-/])(?:19|20)\d{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
#: Ids that programs of this trade give out. Files, assistants and whatever else lasts are not among them.
_GIVEN: Final = r"(?:call|chatcmpl|cmpl|ctc|evt|fc|fp|gen|item|msg|req|resp|rs|run|ses|srvtoolu|step|toolu|trace|ws)"
#: A word that says that a duration follows, or ends in one.
_TAKING: Final = ("in", "took", "elapsed", "duration", "runtime")
_TOOK: Final = "|".join(rf"(?<=\b{word}{between})" for word in _TAKING for between in (" ", ": ", "="))

#: By the word that stands for it: what it looks like, tried in this order. Nobody is told, so only what is another one
#: by definition may be here; what a person may have meant by it belongs into `LOOSE`, or stays.
PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # 0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a
        "uuid": r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
        # 2026-11-18T19:59:22.123456+00:00, 2026-11-18; in another notation with a time of day: Wed, 18 Nov 2026
        # 19:59:22 GMT; Nov 18, 2026 7:59 PM; 2026/11/18 19:59:22; and with it in the middle, as `date` has it
        "time": rf"{_ISO}(?:[T ,]{{1,2}}{_CLOCK})?(?!\d|-\d)|\b\d{{4}}/\d{{2}}/\d{{2}}[T ]{_CLOCK}"
        rf"|\b{_DAY}\d{{1,2}} {_MONTH} \d{{4}}[ ,]{{1,2}}{_CLOCK}"
        rf"|\b{_DAY}{_MONTH} {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?,? {_CLOCK} (?:[A-Z]{{3,4}} )?\d{{4}}\b"
        rf"|\b{_DAY}{_MONTH} {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}[ ,]{{1,2}}{_CLOCK}"
        r"|(?<![\w:.])(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?![\w:])"
        # seconds, milliseconds, microseconds or nanoseconds since 1970, from 2020 to 2033
        r"|(?<![\w.-])1[6-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?(?![\w-])",
        # passed in 0.12s, took 431 ms
        "duration": rf"(?:{_TOOK})(?:\d+(?:\.\d+)? ?(?:ns|us|µs|ms)|\d+\.\d+ ?(?:s|secs?|seconds))\b",
        # the part of /tmp/tmpab12cd_x/a that tempfile makes up, of /tmp/tmp.Ab3dEf6hIj/a that mktemp does, and of
        # /var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T what a Mac does
        "folder": r"(?:(?<=/tmp/)|(?<=/T/))(?:tmp(?=[a-z_]*\d)[a-z0-9_]{8}|tmp\.[A-Za-z0-9]{10})(?!\w)"
        r"|(?<=/var/folders/)\w{2}/\w{20,40}(?=/)",
        # 127.0.0.1:54321, where systems give out ports; a database has the one below that it always has
        "port": r"\b(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0):(?:3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}"
        r"|[45]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])(?!\d)",
        # <object at 0x7f3a9c001230>
        "address": r"(?<=\bat )0x[0-9a-fA-F]{8,16}\b",
        # a SHA or any other long run of hex digits with both kinds in it; a ULID
        "hex": r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,128}\b"
        r"|\b(?=\d*[A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}\b",
        # call_9fK2mQ7xAb12, chatcmpl-Bx92kQ7mZ1aa
        "id": rf"\b{_GIVEN}[_-](?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{12,64}}\b",
    }
)
#: Of these what a client tells the model about its surroundings has: a prompt is written by people.
_SURROUNDINGS: Final = {"uuid": PATTERNS["uuid"], "time": rf"{_ISO}(?:[T ]{_CLOCK})?(?!\d|-\d)"}

_NAMED_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_HOUR: Final = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_HALF: Final = r"(?: ?[AaPp]\.?[Mm]\b\.?)?"

#: The same, where a shape may be content too: `10:30` a time or a score, `1a2b3c4` a commit or a name.
LOOSE: Final[Mapping[str, str]] = MappingProxyType(
    {
        # 18.11.2026, 11/18/26, 2026/11/18; 20261118T195922; 18 Nov, 18-Nov-2026; Nov 18 19:59, November 18, 2026;
        # 19:59, 7:59 pm; Wednesday; and seconds since 1970 in a name
        "time": r"\b\d{4}/\d{2}/\d{2}\b|(?<!\d)1[6-9]\d{8}(?:\d{3})?(?!\d)"
        r"|\b\d{1,2}\.\d{1,2}\.(?:19|20)\d{2}\b|\b\d{1,2}/\d{1,2}/(?:(?:19|20)\d{2}|\d{2})\b"
        r"|\b(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[T_-]?\d{4}(?:\d{2})?Z?)?\b"
        rf"|\b{_DAY}\d{{1,2}}(?:st|nd|rd|th)?[ -]{_NAMED_MONTH}\b(?! {{1,2}}\d{{1,2}}(?:\s|$))"
        rf"(?:[ -](?:19|20)\d{{2}})?(?:,? {_HOUR}{_HALF})?"
        rf"|\b{_DAY}{_NAMED_MONTH} {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?\b(?:,? (?:19|20)\d{{2}}\b)?(?:,? {_HOUR}{_HALF})?"
        rf"|\b{_HOUR}{_HALF}(?![\d:])|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
        # pid 4711, PID: 4711, process 4711, sshd[4711]:
        "process": r"\b(?:[Pp]?[Pp]id|PP?ID|[Tt]id|TID)\b\W{0,3}\d{1,10}\b|\b[Pp]rocess(?: id)? \d{3,10}\b"
        r"|(?<=\w)\[\d{2,10}\](?=[:\s])",
        # 431 ms, 2.5s, whatever stands before it
        "duration": r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms)\b|\b\d+\.\d+ ?(?:s|secs?|seconds)\b",
        # tmpabcdefgh, build-ab12cd_x in /tmp; pytest-of-me/pytest-12
        "folder": r"(?<=/tmp/)(?:tmp|[\w.-]{1,40}[-_.](?=[a-z_]*\d)(?=[\d_]*[a-z]))[a-z0-9_]{8}(?=[/\s\"']|$)"
        r"|\bpytest-of-[^\s\"'/]+/pytest-\d+",
        # 0x7f3a9c001230
        "address": r"\b0x[0-9a-fA-F]{8,16}\b",
        # req_8a7b6c, and as sealing renames them: call_1
        "id": rf"\b{_GIVEN}[_-](?:\d{{1,6}}|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{6,64}})\b",
        # 1a2b3c4, as git shortens a commit
        "hash": r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,15}\b",
    }
)
#: Members of JSON whose numbers are a process.
_PROCESSES: Final = frozenset({"pid", "ppid", "process_id", "thread_id", "tid"})

_VOLATILE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items()))
#: None of them is in a line without one of these, nor goes beyond a line.
_WORTH_A_LOOK: Final = re.compile(r"\d|/tmp/|/var/")
#: Numbers of JSON that are times: seconds to nanoseconds, from 2020 to 2033.
_EPOCHS: Final = tuple((16 * 10**8 * unit, 2 * 10**9 * unit) for unit in (1, 10**3, 10**6, 10**9))


def settled(value: Any) -> Any:
    """The value, a word for its kind wherever something volatile stands in a text, or a number that is a time."""
    if isinstance(value, str):
        return "\n".join(_settled(line) if _WORTH_A_LOOK.search(line) else line for line in value.split("\n"))
    if is_object(value):
        return {name: settled(each) for name, each in value.items()}
    if is_list(value):
        return [settled(each) for each in value]
    if type(value) in (int, float) and any(low <= value < high for low, high in _EPOCHS):
        return "<time>"
    return value


_DATED: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _SURROUNDINGS.items()))


def dated(value: Any) -> Any:
    """A prompt that says when it was written, and for which session, without that."""
    if isinstance(value, str):
        return _DATED.sub(lambda found: f"<{found.lastgroup}>", value)
    if is_object(value):
        return {name: dated(each) for name, each in value.items()}
    return [dated(each) for each in value] if is_list(value) else value


def _settled(line: str) -> str:
    return _VOLATILE.sub(lambda found: f"<{found.lastgroup}>", line)


_LOOSE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in LOOSE.items()))


def loosened(value: Any) -> Any:
    """Of what is settled, with a word for what may be volatile too."""
    if isinstance(value, str):
        return _LOOSE.sub(lambda found: f"<{found.lastgroup}>", value)
    if is_object(value):
        return {
            name: "<process>" if name in _PROCESSES and type(each) is int else loosened(each)
            for name, each in value.items()
        }
    if is_list(value):
        return [loosened(each) for each in value]
    return value
