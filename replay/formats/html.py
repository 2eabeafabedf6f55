"""One stream as a page of its own, for a bug report: the page's files and the data in one file."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from wiretape.events.core.json_text import dumps, parse
from wiretape.events.emit import Summariser
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage
from wiretape.proxy.api.streams import row_json, summary_json
from wiretape.proxy.inspector.explanations import explanations
from wiretape.proxy.inspector.feed import Inspector
from wiretape.proxy.inspector.page import files
from wiretape.proxy.store.catalogue_row import read_whole, row_of_tape

__all__ = ["to_html"]

#: Each uses only what is above it.
_SCRIPTS: Final = ("model", "parts", "timeline", "copy", "list", "stream", "compare", "app")
_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "[^"]+";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=async |class |const |function )", re.MULTILINE)
_VENDORED: Final = re.compile(r"export\{([^}]*)\};?\s*$")
_POLICY: Final = (
    "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def to_html(name: str, records: Sequence[Record], damage: Sequence[Damage] = ()) -> tuple[bytes, Counter[str]]:
    """Return the page of one stream, and what only some files lose."""
    stream = name.removesuffix(".tape")
    inspector = Inspector(repairs=True)
    data: dict[str, Any] = {
        "summary": summary_json(stream, Summariser().feed(*records), live=False, whole=True, damage=damage),
        "row": row_json(read_whole(row_of_tape(stream, records).stream, records)[0], live=False),
        "feed": [parse(inspector.line(record)) for record in records],
        "explain": explanations(),
        "conversation": None,
    }
    script, style = _script(), files()["app.css"].decode()
    assert "</script" not in script, "the page has no such text"
    policy = _POLICY.format(_hash(script), _hash(style))
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    embedded = dumps(data).decode().replace("<", "\\u003c")
    body = f'<script type="application/json" id="tape">{embedded}</script>\n<script type="module">{script}</script>'
    html = re.sub(r"<link rel=\"icon\"[^>]*>\n", "", files()["index.html"].decode())
    html = re.sub(r"<link rel=\"stylesheet\"[^>]*>", lambda _: head, html)
    html = re.sub(r"<script type=\"module\"[^>]*></script>", lambda _: body, html)
    return html.encode(), +Counter(excerpts=sum("more" in line for line in data["feed"]))


def _script() -> str:
    vendored = files()["vendor/preact-htm.js"].decode()
    found = _VENDORED.search(vendored)
    assert found is not None, "the vendored file ends with its exports"
    names = [pair.split(" as ") for pair in found[1].split(",")]
    given, known = (",".join(text) for text in ((f"{b}:{a}" for a, b in names), (b for _, b in names)))
    parts = [f"const {{{known}}}=(()=>{{{vendored[: found.start()]}return{{{given}}}}})();"]
    parts += [_EXPORT.sub("", _IMPORT.sub("", files()[f"{name}.js"].decode())) for name in _SCRIPTS]
    return "\n".join(parts)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
