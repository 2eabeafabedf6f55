"""Replace values that differ each time a machine writes them: times, random ids, temporary folders, durations.

`settled` is for tool results and `dated` for system prompts; both replace only what is volatile by definition.
`loosened` also replaces what may be content, so its use must be reported.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import is_list, is_object

__all__ = ["LOOSE", "PATTERNS", "dated", "loosened", "settled"]

_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY: Final = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
_CLOCK: Final = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm])?(?: ?(?:Z\b|[+-]\d{2}:?\d{2}|UTC|GMT))?"
_ISO: Final = r"(?<!\d)(?<!\d[-/])(?:19|20)\d{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
#: Prefixes of ids that programs give out for one use; files and assistants last, and are not among them.
_GIVEN: Final = r"(?:call|chatcmpl|cmpl|ctc|evt|fc|fp|gen|item|msg|req|resp|rs|run|ses|srvtoolu|step|toolu|trace|ws)"
#: Words before a duration.
_TAKING: Final = ("in", "took", "elapsed", "duration", "runtime")
_TOOK: Final = "|".join(rf"(?<=\b{word}{between})" for word in _TAKING for between in (" ", ": ", "="))

#: By placeholder: the pattern, tried in this order. These are not reported, so only what is volatile by definition may
#: be here; what a person may have meant belongs in `LOOSE`.
PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # 0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a
        "uuid": r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
        # 2026-11-18T19:59:22.123456+00:00, 2026-11-18; with a time of day also: Wed, 18 Nov 2026 19:59:22 GMT;
        # Nov 18, 2026 7:59 PM; 2026/11/18 19:59:22; and as `date` prints it
        "time": rf"{_ISO}(?:[T ,]{{1,2}}{_CLOCK})?(?!\d|-\d)|\b\d{{4}}/\d{{2}}/\d{{2}}[T ]{_CLOCK}"
        rf"|\b{_DAY}\d{{1,2}} {_MONTH} \d{{4}}[ ,]{{1,2}}{_CLOCK}"
        rf"|\b{_DAY}{_MONTH} {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?,? {_CLOCK} (?:[A-Z]{{3,4}} )?\d{{4}}\b"
        rf"|\b{_DAY}{_MONTH} {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}[ ,]{{1,2}}{_CLOCK}"
        r"|(?<![\w:.])(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?![\w:])"
        # seconds, milliseconds, microseconds or nanoseconds since 1970, from 2020 to 2033
        r"|(?<![\w.-])1[6-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?(?![\w-])",
        # passed in 0.12s, took 431 ms
        "duration": rf"(?:{_TOOK})(?:\d+(?:\.\d+)? ?(?:ns|us|µs|ms)|\d+\.\d+ ?(?:s|secs?|seconds))\b",
        # the random part of /tmp/tmpab12cd_x/a (tempfile), /tmp/tmp.Ab3dEf6hIj/a (mktemp) and
        # /var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T (macOS)
        "folder": r"(?:(?<=/tmp/)|(?<=/T/))(?:tmp(?=[a-z_]*\d)[a-z0-9_]{8}|tmp\.[A-Za-z0-9]{10})(?!\w)"
        r"|(?<=/var/folders/)\w{2}/\w{20,40}(?=/)",
        # 127.0.0.1:54321: ephemeral ports; lower ones are fixed
        "port": r"\b(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0):(?:3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}"
        r"|[45]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])(?!\d)",
        # <object at 0x7f3a9c001230>
        "address": r"(?<=\bat )0x[0-9a-fA-F]{8,16}\b",
        # a SHA or another long run of hex letters and digits; a ULID
        "hex": r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,128}\b"
        r"|\b(?=\d*[A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}\b",
        # call_9fK2mQ7xAb12, chatcmpl-Bx92kQ7mZ1aa
        "id": rf"\b{_GIVEN}[_-](?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{12,64}}\b",
    }
)
#: The patterns for system prompts, which people write.
_SURROUNDINGS: Final = {"uuid": PATTERNS["uuid"], "time": rf"{_ISO}(?:[T ]{_CLOCK})?(?!\d|-\d)"}

_NAMED_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_HOUR: Final = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_HALF: Final = r"(?: ?[AaPp]\.?[Mm]\b\.?)?"

#: Patterns of what may be content: `10:30` a time or a score, `1a2b3c4` a commit or a name.
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
        # 431 ms, 2.5s after any word
        "duration": r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms)\b|\b\d+\.\d+ ?(?:s|secs?|seconds)\b",
        # tmpabcdefgh, build-ab12cd_x in /tmp; pytest-of-me/pytest-12
        "folder": r"(?<=/tmp/)(?:tmp|[\w.-]{1,40}[-_.](?=[a-z_]*\d)(?=[\d_]*[a-z]))[a-z0-9_]{8}(?=[/\s\"']|$)"
        r"|\bpytest-of-[^\s\"'/]+/pytest-\d+",
        # 0x7f3a9c001230
        "address": r"\b0x[0-9a-fA-F]{8,16}\b",
        # req_8a7b6c, and call_1 as sealing renames ids
        "id": rf"\b{_GIVEN}[_-](?:\d{{1,6}}|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{6,64}})\b",
        # 1a2b3c4, a short commit hash
        "hash": r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,15}\b",
    }
)
#: Members whose numbers are process ids.
_PROCESSES: Final = frozenset({"pid", "ppid", "process_id", "thread_id", "tid"})

_VOLATILE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items()))
#: Every pattern matches inside one line that has one of these.
_WORTH_A_LOOK: Final = re.compile(r"\d|/tmp/|/var/")
#: JSON numbers that are times: seconds to nanoseconds, from 2020 to 2033.
_EPOCHS: Final = tuple((16 * 10**8 * unit, 2 * 10**9 * unit) for unit in (1, 10**3, 10**6, 10**9))
_DATED: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _SURROUNDINGS.items()))
_LOOSE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in LOOSE.items()))


def settled(value: Any) -> Any:
    """Replace volatile values in tool results, also numbers that are times."""
    return _each(value, _settled)


def dated(value: Any) -> Any:
    """Replace times and UUIDs in system prompts."""
    return _each(value, lambda each, _: _DATED.sub(_placeholder, each) if isinstance(each, str) else each)


def loosened(value: Any) -> Any:
    """Replace also values that may be volatile, after `settled`."""
    return _each(value, _loosened)


def _each(value: Any, change: Callable[[Any, str], Any], name: str = "") -> Any:
    """Change each scalar of a value, given the name of its member."""
    if is_object(value):
        return {key: _each(each, change, key) for key, each in value.items()}
    if is_list(value):
        return [_each(each, change) for each in value]
    return change(value, name)


def _settled(value: Any, _: str) -> Any:
    if isinstance(value, str):
        lines = value.split("\n")
        return "\n".join(_VOLATILE.sub(_placeholder, line) if _WORTH_A_LOOK.search(line) else line for line in lines)
    is_time = type(value) in (int, float) and any(low <= value < high for low, high in _EPOCHS)
    return "<time>" if is_time else value


def _loosened(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return _LOOSE.sub(_placeholder, value)
    return "<process>" if name in _PROCESSES and type(value) is int else value


def _placeholder(found: re.Match[str]) -> str:
    return f"<{found.lastgroup}>"
