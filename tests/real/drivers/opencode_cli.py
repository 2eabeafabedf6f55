"""opencode, run headless in an empty folder: `opencode run --format json`."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from ..processes import OPENCODE, environment
from .command import failed, failure, run, write_record
from .lines import serve, turn

#: It asks again for ever where a connection breaks; an answer takes 7 s on a busy machine.
_PATIENCE_S: Final = 25


def _configuration(asked: dict[str, Any]) -> str:
    model = asked["model"]
    options = {"baseURL": asked["base_url"], "apiKey": asked["key"], "includeUsage": asked["usage"]}
    models = {
        name: {"name": name, "tool_call": True, "limit": {"context": 200_000, "output": 4096}}
        for name in (model, "text")
    }
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "px", "options": options, "models": models}
    return json.dumps(
        {
            "autoupdate": False,
            "share": "disabled",
            "model": f"px/{model}",
            "small_model": "px/text",
            "provider": {"px": provider},
            "permission": {"bash": "allow"},
            "agent": {"title": {"disable": True}},
        }
    )


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> dict[str, Any] | None:
    """Run it once."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "opencode.json").write_text(_configuration(asked), encoding="utf-8")
        write_record(folder, asked["record"] or "ran")
        env = environment(
            OPENCODE_DISABLE_MODELS_FETCH="1", XDG_DATA_HOME=f"{folder}/data", XDG_CONFIG_HOME=f"{folder}/c"
        )
        words = [OPENCODE, "run", "--format", "json", "--model", f"px/{asked['model']}", asked["prompt"]]
        done = run(words, env, asked if asked["stop"] else asked | {"timeout": _PATIENCE_S}, folder)
    error = failed(done, done.err.strip()[-300:])
    for line in done.out.splitlines():
        event = json.loads(line)
        part = event.get("part", {})
        match event["type"]:
            case "step_start":
                turns.append(turn("", [], None, None))
            case "text":
                turns[-1]["text"] += part["text"]
            case "tool_use":
                state = part["state"]
                turns[-1]["calls"].append([part["callID"], part["tool"], json.dumps(state["input"])])
                if state["status"] == "completed":
                    ran.append(json.dumps(state["input"]))
            case "step_finish":
                turns[-1]["finish"] = part["reason"].replace("-", "_")
                tokens = part["tokens"]
                turns[-1]["usage"] = [tokens["input"], tokens["output"]]
            case "error":
                data = event["error"].get("data", {})
                error = failure(event["error"]["name"], data.get("message")) | {"status": data.get("statusCode")}
            case _:
                continue
    return error


if __name__ == "__main__":
    serve(answer)
