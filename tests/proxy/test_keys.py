"""Secrets that do not print themselves, and the identity of callers."""

import copy
import json
import os
import pickle
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from wiretape.proxy.config.model import Key, Secret
from wiretape.proxy.limits import CALLER_CHARS, SALT_BYTES
from wiretape.proxy.security.access import LOCAL, Keys, credentials, salt_of

VALUE = "sk-canary-0123456789abcdef0123456789abcdef"
SALT = bytes(SALT_BYTES)
OTHER = "another-0123456789abcdef0123456789abcdef"


def test_secret_cannot_be_formatted_serialised_or_copied() -> None:
    secret = Secret(VALUE)
    assert VALUE not in f"{secret} {secret!r} {secret:.60}"
    ways: tuple[Callable[[Any], object], ...] = (json.dumps, orjson.dumps, pickle.dumps, copy.copy, copy.deepcopy, vars)
    for fails in ways:
        with pytest.raises(TypeError) as caught:
            fails(secret)
        assert VALUE not in "".join(traceback.format_exception(caught.value))


PRESENTED: list[tuple[str, list[tuple[bytes, bytes]], list[bytes]]] = [
    ("nothing", [(b"accept", b"*/*")], []),
    ("a bearer", [(b"authorization", b"Bearer abc")], [b"abc"]),
    ("in any case, with spaces", [(b"Authorization", b"  bEARER   abc ")], [b"abc"]),
    ("for Anthropic", [(b"x-api-key", b"abc")], [b"abc"]),
    ("for Azure", [(b"Api-Key", b"abc")], [b"abc"]),
    ("for Google", [(b"X-Goog-Api-Key", b"abc")], [b"abc"]),
    ("for Azure's gateway", [(b"Ocp-Apim-Subscription-Key", b"abc")], [b"abc"]),
    ("for Amazon", [(b"authorization", b"AWS4 abc"), (b"X-Amz-Security-Token", b"def")], [b"AWS4 abc", b"def"]),
    ("the same twice", [(b"authorization", b"Bearer abc"), (b"x-api-key", b"abc")], [b"abc"]),
    ("two", [(b"authorization", b"Bearer abc"), (b"x-api-key", b"def")], [b"abc", b"def"]),
    ("another scheme", [(b"authorization", b"Basic abc")], [b"Basic abc"]),
    ("a scheme without a word", [(b"authorization", b"Bearer ")], []),
    ("no scheme", [(b"authorization", b"abc")], [b"abc"]),
    ("an empty one", [(b"x-api-key", b"")], []),
    ("a cookie", [(b"cookie", b"key=abc")], []),
]


@pytest.mark.parametrize(("headers", "expected"), [row[1:] for row in PRESENTED], ids=[row[0] for row in PRESENTED])
def test_credentials_are_found_under_every_name(headers: list[tuple[bytes, bytes]], expected: list[bytes]) -> None:
    assert credentials(headers) == expected


def bearer(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + value.encode())]


def test_without_own_keys_all_callers_enter_and_are_distinct() -> None:
    keys = Keys((), SALT)
    assert not keys.required
    assert keys.caller([]) == LOCAL
    one, two = keys.caller(bearer(VALUE)), keys.caller(bearer(OTHER))
    assert one != two
    assert one == keys.caller([(b"api-key", VALUE.encode())])
    assert one != Keys((), b"x" * SALT_BYTES).caller(bearer(VALUE))
    assert re.fullmatch(rf"[0-9a-f]{{{CALLER_CHARS}}}", one or "")
    assert keys.caller([*bearer(VALUE), (b"x-api-key", OTHER.encode())]) not in (one, two, None)


NAMED = Keys((Key("a", Secret(VALUE)), Key("b", Secret(OTHER))), SALT)


@pytest.mark.parametrize("value", [VALUE, OTHER])
def test_each_own_key_is_accepted(value: str) -> None:
    assert NAMED.required
    assert NAMED.caller(bearer(value)) == Keys((), SALT).caller(bearer(value))
    assert NAMED.caller([(b"x-api-key", value.encode())]) == NAMED.caller(bearer(value))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer(""),
        bearer(VALUE[:-1]),
        bearer(VALUE + "x"),
        bearer(VALUE.upper()),
        bearer("x" * 1_000_000),
        [(b"authorization", b"Basic " + VALUE.encode())],
        [*bearer(VALUE), (b"x-api-key", b"something else")],
        [*bearer(VALUE), (b"x-api-key", OTHER.encode())],
        [(b"authorization", b"Bearer \xff\x00")],
    ],
    ids=["none", "empty", "short", "long", "case", "1 MB", "scheme", "and another", "two of ours", "bytes"],
)
def test_other_credentials_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    assert NAMED.caller(headers) is None


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    original = __import__("hmac").compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append(len(one) - len(other))
        return bool(original(one, other))

    monkeypatch.setattr("wiretape.proxy.security.access.hmac.compare_digest", counted)
    for headers in (bearer(VALUE), bearer(OTHER), bearer("x")):
        NAMED.caller(headers)
    assert compared == [0] * 6


def test_salt_is_created_once_with_private_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    salt = salt_of(folder)
    assert len(salt) == SALT_BYTES
    assert salt_of(folder) == salt
    assert (folder / "caller.salt").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.listdir(folder) == ["caller.salt"]  # noqa: PTH208 - names, not paths


def test_without_a_folder_each_salt_is_new() -> None:
    assert salt_of(None) != salt_of(None)


def test_damaged_salt_and_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "caller.salt").write_bytes(b"short")
    with pytest.raises(OSError, match=r"caller\.salt"):
        salt_of(tmp_path)
    (tmp_path / "caller.salt").unlink()
    (tmp_path / "elsewhere").write_bytes(bytes(SALT_BYTES))
    (tmp_path / "caller.salt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"(?i)link"):
        salt_of(tmp_path)
