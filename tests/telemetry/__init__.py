"""Telemetry against the real programs: `make test-telemetry` runs Prometheus, promtool and Phoenix on loopback."""
