"""One chat tape and six clients of four languages; an anthropic client on an exchange of its own.

Each client is a program of its own below clients/, which gets nothing but a base URL. The clients that are not
installed here are skipped, and the summary says so: `make stories` installs them first.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wiretape.replay.pytest_plugin.tape import Tape

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"

#: Where `make real-clients` installs the clients, unless set otherwise.
CACHE = Path(os.environ.get("STORIES_CACHE", HERE.parents[1] / ".cache/real"))
NODE_MODULES = Path(os.environ.get("STORIES_NODE_MODULES", HERE.parent / "real/node/node_modules"))


def python_of(name: str) -> str:
    """The interpreter of an environment of its own."""
    return str(CACHE / name / "bin/python")


CHAT: dict[str, tuple[str, str]] = {
    "openai Python": (sys.executable, "openai_python.py"),
    "LangChain": (python_of("clients"), "langchain_python.py"),
    "openai Node": ("node", "openai_node.mjs"),
    "fetch": ("node", "fetch_node.mjs"),
    "curl": ("sh", "ask.sh"),
}


def said_by(program: str, script: str, tape: Tape) -> str:
    """What it printed; it knows nothing but the variables of the tape."""
    if shutil.which(program) is None:
        pytest.skip(f"UNTESTED: {script} needs {program}, which `make stories` installs")
    if script == "openai_node.mjs" and not (NODE_MODULES / "openai").is_dir():
        pytest.skip(f"UNTESTED: {script} needs the npm package openai, which `make stories` installs")
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    env = {"PATH": os.environ["PATH"], "STORIES_NODE_MODULES": str(NODE_MODULES), **keys, **tape.env}
    done = subprocess.run(
        [program, str(CLIENTS / script)], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.tape("weather.tape", match="position")
@pytest.mark.parametrize("client", CHAT)
def test_all_clients_replay_one_tape(tape: Tape, client: str) -> None:
    assert said_by(*CHAT[client], tape) == "Sunny in Oslo, 4 °C — take a scarf 🧣."
    assert tape.sent[0].json["messages"] == [{"role": "user", "content": "How is the weather in Oslo?"}]


@pytest.mark.tape("anthropic.tape", match="position")
def test_anthropic_client_replays_an_exchange(tape: Tape) -> None:
    said = said_by(python_of("anthropic"), "anthropic_python.py", tape)
    assert json.loads(said) == {"text": "I look it up.", "tool": "get_weather", "input": {"city": "Oslo"}}
    assert tape.sent[0].path == "/v1/messages"
    assert tape.fold.ending == "completed"
