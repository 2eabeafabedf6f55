"""Ask a server on this machine whether it runs, with the standard library alone: containers do so every few seconds."""

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["check", "quick_address"]


def quick_address(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the address of the server if the environment alone gives it, or None if the configuration must be read."""
    port = environ.get("WIRETAPE_PORT", "8787")  # Kubernetes sets it to a URL, for a service named `wiretape`
    configured = "WIRETAPE_CONFIG" in environ or Path("wiretape.toml").exists()
    if configured or not port.isdecimal() or not {*arguments} <= {"--ready"}:
        return None
    return environ.get("WIRETAPE_HOST", "127.0.0.1"), int(port)


def check(host: str, port: int, *, ready: bool) -> int:
    """Return 0 if the server is alive (`ready`: takes new streams); otherwise print the reason and return 1."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare := host.strip("[]"), bare)  # noqa: S104 - connected to
    request = (
        f"GET /wiretape/{'readyz' if ready else 'healthz'} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    try:
        with socket.create_connection((near, port), timeout=5) as sock, sock.makefile("rb") as answer:
            sock.sendall(request.encode())
            head, _, body = answer.read(65_536).partition(b"\r\n\r\n")
    except (OSError, OverflowError) as error:
        why = f"no answer from {host} port {port}: {error}"
    else:
        if head.startswith(b"HTTP/1.1 200 "):
            return 0
        why = f"{host} port {port} answered: {(body or head).decode(errors='replace')}"
    sys.stderr.write(f"wiretape: {' '.join(why.split())}\n")
    return 1
