"""The test binaries of Karpenter's own suites, built once from the Go module that `go.mod` pins.

`test/suites/regression` is built as it is. `test/suites/performance` reads the metrics of Karpenter's pod, which does
not exist here: it is built from a copy without those reads, `WITHOUT_A_POD` is the whole difference.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path
from typing import NamedTuple

from tests.e2e.programs import BuildFailed, ProgramsMissing, run_go, stated

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / "build" / "upstream"
SUITES = ("regression", "performance")

_KARPENTER = re.compile(r"^require sigs\.k8s\.io/karpenter (v\S+)$", re.MULTILINE)


class Replacement(NamedTuple):
    """Text of a file of upstream's that becomes other text, so many times."""

    file: str
    old: str
    new: str
    times: int


_REPORT = "test/suites/performance/report.go"
WITHOUT_A_POD = (
    # Pods that were drained, by a metric of Karpenter: reported, held against no threshold.
    Replacement(
        "test/suites/performance/report.go",
        "metrics := env.ExpectPodMetrics()",
        "var metrics []common.PrometheusMetric",
        1,
    ),
    # No samples of Karpenter's memory and processor time: upstream fails, because a zero is below every threshold.
    Replacement(_REPORT, "if report.MetricsSampleCount == 0 {", "if false {", 3),
)
"""Set-up that differs: thresholds of Karpenter's memory and processor time say nothing, all others are upstream's."""


def find() -> Path:
    """The folder with `regression.test` and `performance.test`.

    Raises:
        ProgramsMissing: they are not built.
    """
    folder = CACHE / _key()
    if not all((folder / f"{suite}.test").is_file() for suite in SUITES):
        raise ProgramsMissing("Karpenter's suites are not built; `make e2e-upstream` builds them")
    return folder


def build() -> Path:
    """Build what is missing, which takes minutes, and return the folder.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: they cannot be built, or a file of upstream's is not as `WITHOUT_A_POD` expects it.
    """
    with suppress(ProgramsMissing):
        return find()
    folder = CACHE / _key()
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        source = unfinished / "source"
        shutil.copytree(_download(), source, copy_function=shutil.copyfile)
        for replacement in WITHOUT_A_POD:
            replace(source / replacement.file, replacement)
        packages = [f"./test/suites/{suite}" for suite in SUITES]
        flags = ["-trimpath", "-ldflags", "-s -w", "-o", f"{unfinished}{os.sep}"]
        run_go(["test", "-c", *flags, *packages], HERE, folder=source)
        shutil.rmtree(source)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def version() -> str:
    """The release of Karpenter whose suites these are, such as v1.15.0."""
    return stated(HERE, _KARPENTER)


def replace(path: Path, replacement: Replacement) -> None:
    """Change a file of upstream's.

    Raises:
        BuildFailed: the text is not there as often as expected.
    """
    text = path.read_text()
    if text.count(replacement.old) != replacement.times:
        raise BuildFailed(f"{replacement.file} has `{replacement.old}` {text.count(replacement.old)} times")
    path.write_text(text.replace(replacement.old, replacement.new))


def _download() -> Path:
    """Return the folder in which Go keeps upstream's module, checked against go.sum."""
    said = run_go(["mod", "download", "-json", f"sigs.k8s.io/karpenter@{version()}"], HERE)
    return Path(json.loads(said)["Dir"])


def _key() -> str:
    """Names a build by what it is made of."""
    digest = blake2s(digest_size=6)
    for part in (*((HERE / name).read_bytes() for name in ("go.mod", "go.sum")), repr(WITHOUT_A_POD).encode()):
        digest.update(part)
    return f"{version()}-{digest.hexdigest()}"
