"""The findings of `wiretape doctor`."""

import os
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proxy.store_cases import flat, stream_of
from wiretape.events.tape.record import encode
from wiretape.proxy.cli import doctor as cli_doctor
from wiretape.proxy.cli.doctor import Check, examine, lines, upstreams
from wiretape.proxy.config.load import Loaded, Row
from wiretape.proxy.config.model import Config, Key, Route, Secret, Speaks, Target
from wiretape.proxy.store.catalogue import reindex
from wiretape.proxy.store.folder import Folder
from wiretape.replay.playback.script import Fault, Request, Script, event_stream, json_answer
from wiretape.replay.playback.server import listening

HERMES = b'{"object":"hermes.api_server.capabilities","features":{"run_submission":true},"endpoints":{}}'
HEALTH = json_answer(b'{"status":"ok","platform":"hermes-agent","version":"0.19.0"}')
CUT = event_stream([b"x"], end=Fault.CUT)

ANSWERS: dict[str, tuple[Script, Script, list[tuple[str, str]]]] = {
    "a reachable one is ok": (json_answer(b"{}"), json_answer(b"", 404), [("ok", "reachable (200 for /models)")]),
    "one that requires a key is ok": (
        json_answer(b"{}", 401),
        json_answer(b"", 404),
        [("ok", "requires a key from the client")],
    ),
    "a hermes-agent is recognised without a key": (
        json_answer(b"{}", 401),
        json_answer(b"{}", 401),
        [("ok", "requires a key from the client"), ("note", "`hermes = true` at the top of wiretape.toml")],
    ),
    "one without models is noted": (json_answer(b"", 404), json_answer(b"", 404), [("note", "path of the base URL")]),
    "one that fails is wrong": (json_answer(b"", 503), json_answer(HERMES), [("wrong", "answers 503")]),
    "one that is cut off is wrong": (CUT, CUT, [("wrong", "")]),
    "a hermes-agent is noted as one": (
        json_answer(b"{}"),
        json_answer(HERMES),
        [("ok", "reachable"), ("note", "`hermes = true` at the top of wiretape.toml")],
    ),
    "other capabilities are ignored": (json_answer(b"{}"), json_answer(b'{"features":1}'), [("ok", "")]),
    "capabilities that are not JSON are ignored": (json_answer(b"{}"), json_answer(b"<html>"), [("ok", "")]),
}


def config_of(url: str, data: Path, key: Secret | None = None) -> Config:
    route = Route(name="", targets=(Target(name="here", url=url, key=key),))
    return Config(data=data, port=0, routes={"": route})


@pytest.mark.parametrize("case", ANSWERS)
async def test_upstream_findings(case: str, tmp_path: Path) -> None:
    models, capabilities, due = ANSWERS[case]

    def choose(request: Request) -> Script:
        return {b"/v1/models": models, b"/v1/capabilities": capabilities, b"/v1/health": HEALTH}[request.target]

    async with listening(choose) as (url, _):
        found = await upstreams(config_of(url, tmp_path))
    assert [check.name for check in found] == ["upstream here"] * len(due)
    for check, (state, words) in zip(found, due, strict=True):
        assert check.state == state
        assert words in check.said


async def test_an_upstream_that_does_not_speak_what_its_setting_says_is_wrong(tmp_path: Path) -> None:
    def choose(request: Request) -> Script:
        has = {b"/v1/models": 200, b"/v1/chat/completions": 400, b"/v1/responses": 401}
        return json_answer(b"{}", has.get(request.target, 404))

    async with listening(choose) as (url, _):
        wrong = "no /messages (404): it speaks chat and responses"
        cases: dict[Speaks, str] = {"messages": wrong, "chat": "", "auto": ""}
        for speaks, due in cases.items():
            config = config_of(url, tmp_path)
            (target,) = config.routes[""].targets
            route = replace(config.routes[""], targets=(replace(target, speaks=speaks),))
            found = [check for check in await upstreams(replace(config, routes={"": route})) if check.state == "wrong"]
            assert [due in check.said for check in found] == ([True] if due else [])


async def test_rejected_key_is_wrong_and_not_printed(tmp_path: Path) -> None:
    async with listening(lambda _: json_answer(b"{}", 401)) as (url, upstream):
        (check,) = await upstreams(config_of(url, tmp_path, key=Secret("sk-secret-secret")))
    assert (b"authorization", b"Bearer sk-secret-secret") in upstream.seen[0].request.headers
    assert check == Check("upstream here", "wrong", "rejects the configured key (401 for /models)")


async def test_an_upstream_that_requires_a_key_and_gets_none_is_wrong(tmp_path: Path) -> None:
    """With a key of Wiretape's own, the caller's is not passed on."""
    async with listening(lambda _: json_answer(b"{}", 401)) as (url, _):
        config = replace(config_of(url, tmp_path), keys=(Key("default", Secret("o" * 40)),))
        (check, *_) = await upstreams(config)
    assert (check.state, "set key_env" in check.said) == ("wrong", True)


async def test_unreachable_or_silent_upstream_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_doctor, "DOCTOR_TIMEOUT_S", 0.05)
    async with listening(lambda _: event_stream([b"x"], end=Fault.STALL)) as (url, _):
        (check,) = await upstreams(config_of(url, tmp_path))
    assert check == Check("upstream here", "wrong", "did not answer within 0.05 s")
    (check,) = await upstreams(config_of(url, tmp_path))
    assert check.state == "wrong"
    assert "refused" in check.said


def state_of(checks: list[Check], name: str) -> tuple[str, str]:
    return next((check.state, check.said) for check in checks if check.name == name)


def looked(config: Config) -> list[Check]:
    return examine(Loaded(config, (Row("port", "1", "--port"), Row("host", "x", "default"))))


def test_missing_folder_will_be_created(tmp_path: Path) -> None:
    checks = looked(Config(data=tmp_path / "a/b", port=0))
    assert state_of(checks, "data folder") == ("ok", f"{tmp_path / 'a/b'} does not exist yet and will be created")
    assert not (tmp_path / "a").exists()
    assert state_of(checks, "configuration") == ("ok", "from --port")
    assert state_of(checks, "upstream")[0] == "note"


def test_locked_folder_open_to_others(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    tmp_path.chmod(0o755)
    checks = looked(Config(data=tmp_path, port=0))
    folder.close()
    assert state_of(checks, "lock") == ("ok", f"held by a server (pid {os.getpid()})")
    assert state_of(checks, "data folder")[0] == "note"
    assert "a server is running" in state_of(checks, "address")[1]


def test_damaged_tapes_and_those_of_a_killed_server_are_found(tmp_path: Path) -> None:
    config, day = Config(data=tmp_path, port=0), tmp_path / "2026-11-18"
    for name, folder in (("whole", day), ("bad", day), ("noend", day), ("killed", tmp_path / "live")):
        folder.mkdir(exist_ok=True)
        lines = [*map(encode, flat(stream_of(name, end=folder == day)))]
        lines = lines[:-1] if name == "noend" else lines
        (folder / f"{name}.tape").write_bytes(
            b"".join(lines).replace(b"word 1", b"wOrd 1" if name == "bad" else b"word 1")
        )
    found = {check.state: check.said for check in looked(config) if check.name == "tapes"}
    assert found["wrong"].startswith("2 of 4 damaged: ")
    assert set(re.findall("bad|noend|whole|killed", found["wrong"])) == {"bad", "noend"}
    assert found["note"].startswith("1 without an end, of a server that was killed")
    with closing(Folder(tmp_path)):  # its tapes are being written
        assert state_of(looked(config), "tapes")[1].startswith("2 of 3 damaged: ")
    (day / "bad.tape").unlink()
    (day / "noend.tape").unlink()
    with closing(Folder(tmp_path)):
        assert state_of(looked(config), "tapes") == ("ok", "1 intact")
    assert [check.said[:16] for check in looked(config) if check.name == "tapes"] == ["1 intact", "1 without an end"]


def test_streams_in_another_dialect_than_expected_are_named(tmp_path: Path) -> None:
    (tmp_path / "2026-11-18").mkdir()
    records = flat(stream_of("alien", route="codex"))
    records[-1] = records[-1]._replace(keys={**records[-1].keys, "ending": "protocol"})
    (tmp_path / "2026-11-18/alien.tape").write_bytes(b"".join(map(encode, records)))
    with closing(Folder(tmp_path)) as folder:
        reindex(folder)
    (said,) = (check.said for check in looked(Config(data=tmp_path, port=0)) if "protocol" in check.said)
    assert said.startswith("1 ended as protocol, the last one on [routes.codex]: alien.")
    assert "set `speaks`" in said


def test_findings_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    config = Config(data=tmp_path, port=0, streams_max=1)
    for name, state, changed in (
        ("data folder", "wrong", replace(config, data=tmp_path / "file")),
        ("address", "wrong", replace(config, host="192.0.2.1")),
        ("descriptors", "ok", config),
        ("descriptors", "note", replace(config, streams_max=10**9)),
    ):
        assert state_of(looked(changed), name)[0] == state
    for bound, state in (("DISK_BYTES_FEW", "note"), ("DISK_BYTES_NONE", "wrong")):
        monkeypatch.setattr(cli_doctor, bound, 2**62)
        assert state_of(looked(config), "disk")[0] == state
    in_memory = looked(replace(config, durability="none"))
    assert "data folder" not in [check.name for check in in_memory]
    assert list(lines([Check("a", "ok", "fine"), Check("folder", "wrong", "gone")])) == [
        "ok     a       fine",
        "WRONG  folder  gone",
    ]
