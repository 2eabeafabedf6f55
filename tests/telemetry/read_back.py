"""Read exports with OpenTelemetry's own package, which only Phoenix's environment has: the same in both encodings."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def main() -> None:
    """Read `NAME.pb` and `NAME.json` of each name."""
    for name in sys.argv[1:]:
        data = Path(f"{name}.pb").read_bytes()
        read = ExportTraceServiceRequest.FromString(data)
        assert read.SerializeToString() == data, f"{name}.pb: the official package writes other bytes"
        tree = json.loads(Path(f"{name}.json").read_bytes(), object_hook=_ids)
        assert ParseDict(tree, ExportTraceServiceRequest()) == read, f"{name}: JSON and protobuf differ"


def _ids(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its ids as protobuf's JSON has them; OTLP has them in hex digits."""
    ids = {key for key in value if key in ("traceId", "spanId", "parentSpanId")}
    return {key: base64.b64encode(bytes.fromhex(each)).decode() if key in ids else each for key, each in value.items()}


if __name__ == "__main__":
    main()
