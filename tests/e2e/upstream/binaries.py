"""The test binaries of Karpenter's own suites, built once from the Go modules that `go.mod` here and in `aws` pin.

The suites are built as they are, apart from what a module's `replaced` and `other_versions` say.
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


class Replacement(NamedTuple):
    """Text of a file of upstream's that becomes other text, so many times."""

    file: str
    old: str
    new: str
    times: int


class UpstreamModule(NamedTuple):
    """A Go module of Karpenter's with suites of tests.

    `folder` holds its pin and the lists of its tests, of which so large a share may be not applicable. It is built with
    `other_versions` of modules than it asks for; their sums are in the folder's go.sum too.
    """

    path: str
    folder: Path
    suites: tuple[str, ...]
    largest_share_not_applicable: float
    replaced: tuple[Replacement, ...] = ()
    other_versions: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The release, such as v1.15.0."""
        return stated(self.folder, re.compile(rf"^require {re.escape(self.path)} (v\S+)$", re.MULTILINE))

    @property
    def key(self) -> str:
        """Names a build by what it is made of."""
        digest = blake2s(digest_size=6)
        pins = [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
        for part in (*pins, repr((self.suites, self.replaced, self.other_versions)).encode()):
            digest.update(part)
        return f"{self.path.rpartition('/')[2]}-{self.version}-{digest.hexdigest()}"

    def source(self) -> Path:
        """Return the folder in which Go keeps the module, checked against go.sum.

        Raises:
            ProgramsMissing: there is no Go, or the module cannot be downloaded.
        """
        said = run_go(["mod", "download", "-json", f"{self.path}@{self.version}"], self.folder)
        return Path(json.loads(said)["Dir"])


_REPORT = "test/suites/performance/report.go"
WITHOUT_A_POD = (
    # Pods that were drained, by a metric of Karpenter: reported, held against no threshold.
    Replacement(_REPORT, "metrics := env.ExpectPodMetrics()", "var metrics []common.PrometheusMetric", 1),
    # No samples of Karpenter's memory and processor time: upstream fails, because a zero is below every threshold.
    Replacement(_REPORT, "if report.MetricsSampleCount == 0 {", "if false {", 3),
)
"""`test/suites/performance` reads the metrics of Karpenter's pod, which does not exist here: thresholds of its memory
and processor time say nothing, all others are upstream's.
"""

ALONE = (
    Replacement(
        "test/suites/scheduling/scheduling.go",
        "Expect(lo.Keys(selectors)).To(ContainElements(append("
        "karpv1.WellKnownLabels.UnsortedList(), lo.Keys(karpv1.NormalizedLabels)...)))",
        "_ = selectors",
        1,
    ),
)
"""Each test has a process of its own, and upstream's last step wants every label named by all tests of one process."""

_SDK = "github.com/aws/aws-sdk-go-v2/service"
CORE = UpstreamModule("sigs.k8s.io/karpenter", HERE, ("regression", "performance", "disruption"), 0.2, WITHOUT_A_POD)
AWS = UpstreamModule(
    "github.com/aws/karpenter-provider-aws",
    HERE / "aws",
    (
        "ami",
        "consolidation",
        "drift",
        "integration",
        "interruption",
        "legacyrepair",
        "nodeclaim",
        "repair",
        "scheduling-besteffort",
        "scheduling-strict",
        "storage",
    ),
    0.35,
    ALONE,
    # Clients of services that no test here calls. Not every module proxy has the versions that upstream asks for.
    other_versions=(f"{_SDK}/fis@v1.38.2", f"{_SDK}/timestreamwrite@v1.35.25"),
)
MODULES = {"core": CORE, "aws": AWS}


def module_of(suite: str) -> UpstreamModule:
    """The module that has a suite."""
    return next(module for module in MODULES.values() if suite in module.suites)


def find(module: UpstreamModule) -> Path:
    """The folder with the binary of each suite, such as `regression.test`.

    Raises:
        ProgramsMissing: they are not built.
    """
    folder = CACHE / module.key
    if not all((folder / f"{suite}.test").is_file() for suite in module.suites):
        raise ProgramsMissing("Karpenter's suites are not built; `make e2e-upstream` builds them")
    return folder


def build(module: UpstreamModule) -> Path:
    """Build what is missing, which takes minutes, and return the folder.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: they cannot be built, or a file of upstream's is not as a replacement expects it.
    """
    with suppress(ProgramsMissing):
        return find(module)
    folder = CACHE / module.key
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        source = unfinished / "source"
        shutil.copytree(module.source(), source, copy_function=shutil.copyfile)
        for replacement in module.replaced:
            replace(source / replacement.file, replacement)
        _use_other_versions(module, source)
        packages = [f"./test/suites/{suite}" for suite in module.suites]
        flags = ["-vet=off", "-trimpath", "-ldflags", "-s -w", "-o", f"{unfinished}{os.sep}"]
        run_go(["test", "-c", *flags, *packages], module.folder, folder=source)
        shutil.rmtree(source)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _use_other_versions(module: UpstreamModule, source: Path) -> None:
    """Have a copy of upstream's source built with other versions of modules, whose sums are in our go.sum."""
    for other in module.other_versions:
        run_go(["mod", "edit", f"-replace={other.partition('@')[0]}={other}"], module.folder, folder=source)
    with (source / "go.sum").open("a") as sums:
        sums.write((module.folder / "go.sum").read_text())


def replace(path: Path, replacement: Replacement) -> None:
    """Change a file of upstream's.

    Raises:
        BuildFailed: the text is not there as often as expected.
    """
    text = path.read_text()
    if text.count(replacement.old) != replacement.times:
        raise BuildFailed(f"{replacement.file} has `{replacement.old}` {text.count(replacement.old)} times")
    path.write_text(text.replace(replacement.old, replacement.new))
