"""Upstream's controllers as a program, `main.go` beside this file: built once, and run against a control plane.

`python -m tests.e2e.beside.karpenter` builds it if it is missing; `make e2e` does so. Tests only look.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path
from types import TracebackType

from shiplap_lab.emulated_aws.processes import Process
from tests.e2e import programs
from tests.e2e.control_plane import ControlPlane, wait_until

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / "build" / "karpenter"
_SOURCES = ("go.mod", "go.sum", "main.go")
_START_TIMEOUT_S = 90.0


def find() -> Path:
    """The program.

    Raises:
        ProgramsMissing: it is not built.
    """
    program = CACHE / _key() / "karpenter"
    if not os.access(program, os.X_OK):
        raise programs.ProgramsMissing("Karpenter's controllers are not built; `make e2e` builds them")
    return program


def build() -> Path:
    """Build the program if it is missing, which takes minutes, and return it.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: it cannot be built.
    """
    with suppress(programs.ProgramsMissing):
        return find()
    program = CACHE / _key() / "karpenter"
    unfinished = program.with_name(f"karpenter.{os.getpid()}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    programs.run_go(["build", "-trimpath", "-ldflags", "-s -w", "-o", str(unfinished), "."], HERE)
    unfinished.rename(program)
    return program


def _key() -> str:
    """Names a build by what it is made of."""
    digest = blake2s(digest_size=6)
    for name in _SOURCES:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


class Karpenter:
    """Upstream's controllers at work, with a Lease as in a cluster. A context manager.

    Its cloud provider launches nothing. It knows the instance of every NodeClaim that names one or, with `knows_none`,
    no instance at all.
    """

    def __init__(self, plane: ControlPlane, *, knows_none: bool = False) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(plane.folder / "kubeconfig.json"),
            "LEADER_ELECTION_NAMESPACE": "kube-system",
            "METRICS_PORT": "0",
            "HEALTH_PROBE_PORT": "0",
            "LOG_OUTPUT_PATHS": "stderr",
            "PROVIDER_KNOWS_NONE": "yes" if knows_none else "",
        }
        self._log = plane.folder / f"karpenter-{'knows-none' if knows_none else 'knows-all'}.log"
        self._log.unlink(missing_ok=True)
        self._process = Process([str(find())], log=self._log, environment=environment, folder=plane.folder)

    def __enter__(self) -> Karpenter:
        try:
            wait_until(lambda: self._process.ended or self.asked("list"), f"Karpenter works; see {self._log}",
                       timeout_s=_START_TIMEOUT_S)  # fmt: skip
            if self._process.ended:
                raise self._process.failure("Karpenter")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def asked(self, action: str) -> int:
        """Return the number of calls that the cloud provider got to `create`, `delete`, `reboot` or `list`."""
        return sum(self.names(action).values())

    def names(self, action: str) -> Counter[str]:
        """The same by NodeClaim; a list has no name."""
        lines = self._log.read_text(errors="replace").splitlines()
        words = [line.split(" ") for line in lines if not line.startswith("{")]
        return Counter(" ".join(each[1:]) for each in words if each[0] == action)


def main() -> int:
    """Build; exit code 3 and the reason where that is impossible, 1 where it fails."""
    try:
        program = build()
    except programs.ProgramsMissing as missing:
        sys.stderr.write(f"no Karpenter: {missing}\n")
        return 3
    except programs.BuildFailed as failure:
        sys.stderr.write(f"no Karpenter: {failure}\n")
        return 1
    sys.stderr.write(f"Karpenter's controllers in {program} ({program.stat().st_size / 2**20:.0f} MiB)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
