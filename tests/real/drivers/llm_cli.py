"""simonw's `llm` on the command line; its own log holds the responses."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from ..processes import PYTHONS, environment
from .command import failed, failure, run
from .lines import serve, turn

_LLM: Final = PYTHONS["clients"].with_name("llm")
_PATIENCE_S: Final = 25

_FUNCTION: Final = """
import json

def get_weather(city: str = "", days: int = 0) -> str:
    "The weather of one town"
    with open({record!r}, "a") as written:
        written.write(json.dumps(dict(city=city, days=days)) + "\\n")
    return f"18 degrees in {{city}}"
"""


def _models(asked: dict[str, Any]) -> str:
    """JSON is YAML."""
    model = {
        "model_id": "px",
        "model_name": asked["model"],
        "api_base": asked["base_url"],
        "supports_tools": True,
        "api_key_name": "px",
    }
    return json.dumps([model])


def _turns(log: str) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for said in json.loads(log):
        calls = [[call["tool_call_id"], call["name"], json.dumps(call["arguments"])] for call in said["tool_calls"]]
        counts = [said["input_tokens"], said["output_tokens"]]
        turns.append(turn(said["response"], calls, None, None if None in counts else counts))
    return turns


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> dict[str, Any] | None:
    """Run it once and read its log."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "extra-openai-models.yaml").write_text(_models(asked), encoding="utf-8")
        env = environment(LLM_USER_PATH=folder)
        function = _FUNCTION.format(record=asked["record"] or f"{folder}/ran")
        tool = ["--functions", function] if asked["tool"] else []
        patient = asked if asked["stop"] else asked | {"timeout": _PATIENCE_S}
        done = run([_LLM, "-m", "px", "--key", asked["key"], *tool, asked["prompt"]], env, patient)
        if done.status is None:
            return failed(done)
        log = run([_LLM, "logs", "list", "--json", "-n", "0"], env, patient)
    turns += _turns(log.out) if log.out.strip() else []
    said = turns[-1]["text"] if turns else ""
    if not turns and done.out.strip():
        turns.append(turn(done.out.removesuffix("\n"), [], None, None))  # what a person saw before it failed
    ran += [call[2] for each in turns[:-1] for call in each["calls"]]
    if not done.status and said and said not in done.out:
        return failure("not what it printed", done.out)
    return failed(done)


if __name__ == "__main__":
    serve(answer)
