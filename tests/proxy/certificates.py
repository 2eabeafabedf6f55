"""Certificates that the openssl command makes on demand; a key in a repository would be misused sooner or later."""

import functools
import shutil
import ssl
import subprocess
import tempfile
import warnings
from pathlib import Path

import pytest
import trio

from wiretape.proxy.upstream.tls import client_context

from .scripted import Script

HOST = "upstream.test"

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="UNTESTED: no openssl command found")

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="wiretape-certificates-")  # until the process ends


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=_folder().name, check=True, capture_output=True)


@functools.cache
def authority() -> Path:
    """Return the certificate that a client must trust."""
    name = ("-subj", "/CN=test authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", *name)
    return Path(_folder().name, "ca.pem")


@functools.cache
def trusting() -> ssl.SSLContext:
    """Return a client's context that trusts the authority; it is read once, which takes longer than most tests."""
    return client_context(authority())


@functools.cache
def server_context(kind: str = "good") -> ssl.SSLContext:
    """Return a server's context; other kinds have an expired or self-signed certificate, or one for another name."""
    authority()
    folder = Path(_folder().name)
    host, days = ("other.test" if kind == "wrong name" else HOST), ("-1" if kind == "expired" else "2")
    alternative = f"subjectAltName=DNS:{host},IP:127.0.0.1"
    if kind == "self-signed":
        made = ("-subj", f"/CN={host}", "-addext", alternative, "-days", days)
        _openssl("req", "-x509", *_KEY, "-keyout", f"{kind}.key", "-out", f"{kind}.pem", *made)
    else:
        (folder / "extensions").write_text(f"{alternative}\nauthorityKeyIdentifier=keyid\n")
        _openssl("req", *_KEY, "-keyout", f"{kind}.key", "-out", "leaf.csr", "-subj", f"/CN={host}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", days, "-extfile", "extensions")
        _openssl("x509", "-req", "-in", "leaf.csr", "-out", f"{kind}.pem", *signed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{kind}.pem", folder / f"{kind}.key")
    if kind == "TLS 1.1":
        with warnings.catch_warnings(action="ignore"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def over_tls(script: Script, kind: str = "good") -> Script:
    """Return the same script after a TLS handshake."""

    async def wrapped(stream: trio.abc.Stream) -> None:
        tls = trio.SSLStream(stream, server_context(kind), server_side=True)
        await tls.do_handshake()
        await script(tls)

    return wrapped
