"""A picture for a tool, by the words of its name; off by default, because a picture in a log is noise."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["emoji_of"]

#: The first word of a name that is in this table decides: `read_file` reads, `web_search` is of the web.
_OF_WORD: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("bash", "exec", "execute", "powershell", "process", "run", "shell", "terminal"), "💻"),
        **dict.fromkeys(("cat", "open", "read", "view"), "📖"),
        **dict.fromkeys(("apply", "create", "edit", "insert", "patch", "replace", "save", "write"), "📝"),
        **dict.fromkeys(("delete", "remove", "rm"), "🧹"),
        **dict.fromkeys(("find", "glob", "grep", "lookup", "search"), "🔍"),
        **dict.fromkeys(("list", "ls", "tree"), "📂"),
        **dict.fromkeys(("browser", "crawl", "fetch", "http", "url", "web"), "🌐"),
        **dict.fromkeys(("calculator", "python", "sql", "query"), "🧮"),
        **dict.fromkeys(("image", "screenshot", "vision"), "🎨"),
        **dict.fromkeys(("calendar", "clock", "schedule", "time"), "⏰"),
        **dict.fromkeys(("memory", "note", "remember"), "🧠"),
        **dict.fromkeys(("plan", "task", "todo"), "📋"),
        **dict.fromkeys(("email", "mail", "message", "send", "slack"), "📨"),
        **dict.fromkeys(("agent", "delegate", "handoff"), "🤝"),
    }
)
_OTHER: Final = "🔧"
#: `readFile`, `read-file` and `READ_FILE` are two words each.
_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def emoji_of(tool: str) -> str:
    """Of any name."""
    words = (word.lower() for word in _WORD.findall(tool))
    return next((_OF_WORD[word] for word in words if word in _OF_WORD), _OTHER)
