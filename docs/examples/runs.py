"""Start a run, print it live through lost connections, and answer its tool calls: python runs.py "Weather in Bern?"."""

import json
import os
import sys
import time

import httpx

TOOLS = {"get_weather": lambda city: f"12 degrees and rain in {city}"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SPECS = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
client = httpx.Client(base_url=os.environ["OPENAI_BASE_URL"], timeout=60)
client.headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
started = client.post("/runs", json={"model": "gpt-4o", "input": sys.argv[1], "tools": SPECS}).raise_for_status()
run, last, over = f"/runs/{started.json()['run_id']}", "", False
while not over:
    try:
        with client.stream("GET", f"{run}/events", headers={"Last-Event-ID": last}) as answer:
            for data in (line[6:] for line in answer.raise_for_status().iter_lines() if line.startswith("data: ")):
                event = json.loads(data)
                print(event.get("delta") or event, flush=True)
                if event["event"] == "run.waiting_for_tools":
                    given = [(c["call_id"], TOOLS[c["tool"]](**json.loads(c["arguments"]))) for c in event["calls"]]
                    outputs = [{"call_id": call_id, "output": output} for call_id, output in given]
                    client.post(f"{run}/tool_outputs", json={"tool_outputs": outputs})
                last, over = str(event["sequence"]), event["event"] in ("run.completed", "run.failed", "run.cancelled")
    except httpx.TransportError:
        time.sleep(1)
