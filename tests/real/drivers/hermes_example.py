"""A client as the description of hermes-agent's runs shows it: start one, print each `data:` line until the end."""

import json
import os
import sys

import httpx


def main() -> None:
    """Run what the second argument says at the base URL in the first."""
    url, words = sys.argv[1:]
    with httpx.Client(headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}, timeout=60) as client:
        run = client.post(f"{url}/runs", json={"input": words}).json()["run_id"]
        with client.stream("GET", f"{url}/runs/{run}/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    sys.stdout.write(json.dumps(json.loads(line[5:])) + "\n")


if __name__ == "__main__":
    main()
