"""Run every panel and alert over a real scrape, and send real traces to a real backend. Needs promtool, prometheus and
the environment of Phoenix (`make test-telemetry` makes it).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from tests.telemetry.busy import busy_proxy, free_port, get, running, wait_for
from wiretape.proxy.store.tape_file import records_of
from wiretape.proxy.telemetry.otlp import encoded, joined
from wiretape.proxy.telemetry.spans import SpanFold

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
#: Of the dashboard, as they are if nothing is chosen.
VARIABLES: Final = {"$instance": ".*", "$route": ".*", "$__rate_interval": "6s"}
SCRAPED_S: Final = 15


def main() -> None:
    """Run both parts, or say why one did not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phoenix", type=Path, nargs="?", help="the environment of Phoenix; without it only Prometheus")
    phoenix = parser.parse_args().phoenix
    with tempfile.TemporaryDirectory() as name:
        if shutil.which("promtool") and shutil.which("prometheus"):
            check_rules()
            check_panels(Path(name))
        else:
            print("UNTESTED: no promtool and prometheus found (apt-get install prometheus)")
    if phoenix is not None:
        with tempfile.TemporaryDirectory() as name:
            check_phoenix(Path(name), phoenix.absolute())


def check_rules() -> None:
    """Check the alerts and run their unit tests."""
    folder = DEPLOY / "prometheus"
    subprocess.run(["promtool", "check", "config", "--syntax-only", "prometheus.yml"], cwd=folder, check=True)
    subprocess.run(["promtool", "check", "rules", "wiretape.rules.yml"], cwd=folder, check=True)
    subprocess.run(["promtool", "test", "rules", "wiretape.test.yml"], cwd=folder, check=True)


def check_panels(folder: Path) -> None:
    """Ask a real Prometheus every query of the dashboard while it scrapes a busy proxy."""
    queries = [(panel["title"], each["expr"]) for panel in _panels() for each in panel.get("targets", ())]
    with busy_proxy(folder) as (url, _):
        port = free_port()
        scraped = {"job_name": "wiretape", "metrics_path": "/wiretape/metrics"}
        target = {"targets": [url.removeprefix("http://")]}
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{**scraped, "static_configs": [target]}],
        }
        config["rule_files"] = [str(DEPLOY / "prometheus/wiretape.rules.yml")]
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        server = ["prometheus", f"--web.listen-address=127.0.0.1:{port}", "--config.file=prometheus.yml"]
        with running([*server, "--storage.tsdb.path=tsdb"], folder):
            wait_for("the start of Prometheus", lambda: get(f"http://127.0.0.1:{port}/api/v1/status/buildinfo"))
            time.sleep(SCRAPED_S)
            assert not _answered(port, "wiretape_no_such_metric"), "an empty panel would not be noticed"
            empty = [f"{title}: {query}" for title, query in queries if not _answered(port, query)]
            exposed = httpx.get(f"{url}/wiretape/metrics").content
            subprocess.run(["promtool", "check", "metrics"], input=exposed, check=True)
    if empty:
        sys.exit("\n".join(["these panels are empty:", *empty]))
    print(f"{len(queries)} queries of {len(_panels())} panels answered by Prometheus, none empty")


def _panels() -> list[dict[str, Any]]:
    dashboard = json.loads((DEPLOY / "grafana/wiretape.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _answered(port: int, query: str) -> bool:
    """Return whether the query has a value that is a number."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    asked = urllib.parse.urlencode({"query": query})
    found: Any = get(f"http://127.0.0.1:{port}/api/v1/query?{asked}") or {}
    return any(sample["value"][1] != "NaN" for sample in found.get("data", {}).get("result", ()))


def check_phoenix(folder: Path, environment: Path) -> None:
    """Export to a real backend, and again: it lists each span once, and the official package reads what was sent."""
    port, grpc = free_port(), free_port()
    base = f"http://127.0.0.1:{port}"
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    with running([str(environment / "bin/phoenix"), "serve"], folder, environ):
        wait_for("the start of Phoenix", lambda: get(f"{base}/v1/projects"))
        exports = {"OTEL_EXPORTER_OTLP_ENDPOINT": base, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        with busy_proxy(folder, **exports) as (_, stop):
            time.sleep(5)
            stop.set()
            time.sleep(3)
        listed = wait_for("the arrival of the spans", lambda: _spans(base))
        names = {re.sub(r"\d+$", "", span["name"]) for span in listed}
        assert {"POST /v1/chat/completions", "POST /v1/messages", "POST", "chat text", "execute_tool look"} <= names
        tapes = list((folder / "data").glob("20*/*.tape"))
        operations = {span["attributes"]["wiretape.stream.id"] for span in listed if span["span_kind"] == "LLM"}
        assert operations == {tape.stem for tape in tapes if b'"dialect":""' not in tape.read_bytes()}
        wiretape = str(Path(sys.executable).with_name("wiretape"))
        again = [wiretape, "otel", "backfill", "--since", "1d", "--endpoint", base, "--data", str(folder / "data")]
        subprocess.run(again, check=True)
        time.sleep(3)
        ids = [span["context"]["span_id"] for span in _spans(base)]
        assert sorted(ids) == sorted({span["context"]["span_id"] for span in listed}), "a span was listed twice"
    _read_back(tapes, environment, folder)
    print(f"{len(listed)} spans of {len(operations)} streams listed by Phoenix, once each after two exports")


def _read_back(tapes: Sequence[Path], environment: Path, folder: Path) -> None:
    """Write each tape in both encodings, twice alike, and read them with the official package."""
    for number, tape in enumerate(tapes):
        for is_json, end in ((False, "pb"), (True, "json")):
            made = [joined([_part(tape, is_json=is_json)], is_json=is_json) for _ in range(2)]
            assert made[0] == made[1], f"{tape}: two exports differ"
            (folder / f"{number}.{end}").write_bytes(made[0])
    reader = [str(environment / "bin/python"), str(ROOT / "tests/telemetry/read_back.py")]
    subprocess.run([*reader, *(str(folder / str(number)) for number in range(len(tapes)))], check=True)
    print(f"{len(tapes)} exports in both encodings read by opentelemetry-proto, byte for byte as it writes them")


def _part(tape: Path, *, is_json: bool) -> bytes:
    fold = SpanFold(tape.stem, content=True)
    for record in records_of(tape):
        fold.take(record)
    return encoded(fold.spans({}), {"service.name": "wiretape"}, is_json=is_json)


def _spans(base: str) -> list[dict[str, Any]]:
    """Return all spans that Phoenix lists."""
    listed: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page: Any = get(f"{base}/v1/projects/default/spans?limit=1000{cursor}") or {"data": []}
        listed += page["data"]
        if not page.get("next_cursor"):
            return listed
        cursor = f"&cursor={urllib.parse.quote(page['next_cursor'])}"


if __name__ == "__main__":
    main()
