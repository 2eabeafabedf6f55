"""simonw's `llm`, run as a person runs it; what it holds of each answer stands in its own log."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from ..places import PYTHONS, environment
from .lines import serve, turn

__all__: list[str] = []

_LLM: Final = PYTHONS["clients"].with_name("llm")
_PATIENCE_S: Final = 25

_FUNCTION: Final = """
def get_weather(city: str) -> str:
    "The weather of one town"
    return f"18 degrees in {city}"
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


def _run(command: list[str | Path], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """One run of it, and one look into its log."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "extra-openai-models.yaml").write_text(_models(asked), encoding="utf-8")
        env = environment(LLM_USER_PATH=folder)
        tool = ["--functions", _FUNCTION] if asked["tool"] else []
        try:
            done = _run([_LLM, "-m", "px", "--key", asked["key"], *tool, asked["prompt"]], env)
        except subprocess.TimeoutExpired:
            endless = {"class": "no end", "status": None, "code": None, "message": f"after {_PATIENCE_S} s"}
            return {"turns": [], "ran": [], "error": endless}
        log = _run([_LLM, "logs", "list", "--json", "-n", "0"], env)
    turns = _turns(log.stdout) if log.stdout.strip() else []
    said = turns[-1]["text"] if turns else ""
    if not turns and done.stdout.strip():
        turns = [turn(done.stdout.removesuffix("\n"), [], None, None)]  # what a person saw before it failed
    ran = [call[2] for each in turns[:-1] for call in each["calls"]]
    failure = None
    if done.returncode:
        failure = {"class": "exit status 1", "status": None, "code": None, "message": done.stderr.strip()}
    elif said and said not in done.stdout:
        failure = {"class": "not what it printed", "status": None, "code": None, "message": done.stdout}
    return {"turns": turns, "ran": ran, "error": failure}


if __name__ == "__main__":
    serve(answer)
