"""Check the files below deploy/ and the wheel: linters, installers, and the image's command line in its conditions.

    python -m tests.deploy TOOLS

TOOLS is the folder with hadolint, kubernetes-validate, check-jsonschema and pipx. UNTESTED is what cannot run here.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

from tests.deploy import image, installers
from tests.house.tree import ROOT

_DEPLOY: Final = ROOT / "deploy"
#: `systemd-analyze security`: 0 is best, 10 is worst; a service without any limit has 9.6.
_EXPOSURE_MAX: Final = 2.0


def run(*command: str | Path) -> str:
    """Return what a command prints; leave with it if the command fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or "error" in done.stderr.lower():
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def units(folder: Path) -> str:
    """Verify the units, with a program that exists here, and return how exposed the service is."""
    for unit in (_DEPLOY / "systemd").iterdir():
        text = unit.read_text(encoding="utf-8").replace("/opt/wiretape/bin/wiretape", shutil.which("true") or "")
        (folder / unit.name).write_text(text, encoding="utf-8")
    service = folder / "wiretape.service"
    for unit in folder.iterdir():
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode or unit.name in done.stderr:
            sys.exit(done.stderr)
    (found,) = re.findall(
        r"Overall exposure level for \S+: ([0-9.]+)", run("systemd-analyze", "security", "--offline=true", service)
    )
    if float(found) > _EXPOSURE_MAX:
        sys.exit(f"the service's exposure is {found}, more than {_EXPOSURE_MAX}")
    return f"exposure {found}"


def manifests(tools: Path) -> str:
    """Validate what kustomization.yaml lists; leave if it forgets a file next to it."""
    folder = _DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    if sorted([*listed, "kustomization.yaml"]) != sorted(path.name for path in folder.iterdir()):
        sys.exit("deploy/kubernetes/kustomization.yaml does not list exactly the files next to it")
    run(tools / "kubernetes-validate", "--strict", *(folder / name for name in listed))
    return f"{len(listed)} manifests"


def compose(tools: Path) -> str:
    """Validate the compose files, and that what they mount from here exists. Secrets are made by hand."""
    paths = [_DEPLOY / "compose.yaml", _DEPLOY / "machines/compose.yaml"]
    run(tools / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", *paths)
    mounted = 0
    for path in paths:
        services = yaml.safe_load(path.read_text(encoding="utf-8"))["services"].values()
        volumes = [volume.partition(":")[0] for service in services for volume in service.get("volumes", ())]
        places = [place for place in volumes if place.startswith(".")]
        mounted += len(places)
        if missing := [place for place in places if not (path.parent / place).exists()]:
            sys.exit(f"{path.relative_to(ROOT)} mounts what does not exist: {missing}")
    return f"{len(paths)} files as the Compose specification says, and their {mounted} mounts exist"


def balancer(folder: Path) -> str:
    """Let nginx check its configuration, with addresses in place of the names of the other services."""
    text = (_DEPLOY / "machines/nginx.conf").read_text(encoding="utf-8")
    text = text.replace("/tmp/", f"{folder}/")  # noqa: S108 - the container's own
    conf = folder / "nginx.conf"
    conf.write_text(re.sub(r"server wiretape-\w:", "server 127.0.0.1:", text), encoding="utf-8")
    run("nginx", "-t", "-q", "-p", folder, "-e", folder / "error.log", "-c", conf)
    return "nginx accepts it"


def main() -> None:
    tools = Path(sys.argv[1]).absolute()
    run(tools / "hadolint", _DEPLOY / "Dockerfile")
    print("Dockerfile: hadolint finds nothing")
    print(f"compose: {compose(tools)}")
    print(f"kubernetes: {manifests(tools)} as Kubernetes' schemas say")
    with tempfile.TemporaryDirectory() as name:
        if shutil.which("systemd-analyze"):
            print(f"systemd: units verified, {units(Path(name))}")
        else:
            print("UNTESTED: no systemd-analyze found, so the units were not verified")
    with tempfile.TemporaryDirectory() as name:
        if shutil.which("nginx"):
            print(f"nginx.conf: {balancer(Path(name))}")
        else:
            print("UNTESTED: no nginx found, so the load balancer's configuration was not checked")
    if shutil.which("mandoc"):
        run("mandoc", "-Tlint", "-Wwarning", _DEPLOY / "man/wiretape.1")
        print("wiretape.1: mandoc finds nothing")
    else:
        print("UNTESTED: no mandoc found, so the manual page was not checked")
    with tempfile.TemporaryDirectory() as name:
        print(f"wheel: {installers.check(tools, Path(name))}")
    with tempfile.TemporaryDirectory() as name:
        try:
            print(f"image: {image.check(Path(name))}")
        except (PermissionError, FileNotFoundError):
            print("UNTESTED: no leave to mount here, so the image's command line did not run under its conditions")


if __name__ == "__main__":
    main()
