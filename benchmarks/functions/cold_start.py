"""Measures a cold start of `schedule`: importing its handler and setting up its clients, from layers as shipped.

And, for comparison, a warm invocation that launches (`warm_invocation`).

Every sample is a fresh interpreter that sees the function's folder, the unpacked layers (with their bytecode, for this
machine) and the standard library, and nothing else; the interpreter's own start is not counted. The last phase is what
a decision needs that launches: all clients are made, no request is sent, not even to find the cluster's API server.

The same with `manifests: cluster`: one more phase imports the validation of manifests and what writes statuses. The
processes of the two take turns. The bar is on the processor time of that phase, which other work on the machine changes
least.

Lambda at 1,769 MiB gives one whole processor; expect its figures to be up to twice these.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.shared import warm_invocation
from benchmarks.shared.figures import keep
from shiplap.settings import ClusterSettings, Settings
from shiplap_cdk.artifacts import layers

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 15
BAR_MS = 350
SHOWN_MODULES = 14

# Packages that no function needs, or none on its way to the first decision.
NEVER = ("aws_cdk", "boto3", "moto", "pydantic", "requests", "rich", "s3transfer", "typer", "yaml")
NEVER += ("asyncio", "multiprocessing", "unittest", "shiplap_cli", "shiplap_lab")

LIVE_BAR_MS = 30
"""How much processor time live manifests may take."""

WARM_BAR_MS, LAUNCH_BAR_MS = 20, 12
"""How much processor time a warm invocation may take, and before it calls CreateFleet."""

RECORD_BAR_BYTES = 24_000
"""How much a decision may record of which the process has recorded the instance types before."""

PHASES = ("import of the handler", "settings, log, metrics", "clients of every decision", "clients of a launch")
LIVE_PHASE = "manifests of the cluster"

PROGRAM = """
import sys, time, json
started = time.perf_counter()
sys.path[:0] = sys.argv[1:]
import handler
marks = [time.perf_counter()]
own = handler.install()
context = own.context(own.settings.clusters[0])
marks.append(time.perf_counter())

def make(*ports):
    for port in ports:
        getattr(getattr(context, port), "made", None)  # any attribute makes the adapter
    marks.append(time.perf_counter())

import shiplap.aws.eks, shiplap.cluster.eks_token
from shiplap.aws import session
session.client("eks"), session.credentials()  # a cluster of EKS is looked up and entered with them
make("cluster", "state", "capacity", "catalog", "compute")
make("bus", "timers", "recorder")
cpu_before = time.process_time()
if own.settings.clusters[0].live_manifests:
    import shiplap.manifests.validation.live_objects
    import shiplap.instances.readiness.object_statuses
    import shiplap.manifests.live.nodeclaim_objects
    make("manifests", "memory", "status")
print(json.dumps({
    "ms": [round(1000 * (after - before), 2) for before, after in zip([started, *marks], marks)],
    "live_cpu_ms": round(1000 * (time.process_time() - cpu_before), 1),
    "cpu_ms": round(1000 * time.process_time(), 1),
    "modules": sorted(sys.modules),
}))
"""


def environment() -> dict[str, str]:
    """A function's, as far as clients read it."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    return (
        kept
        | layers.ENVIRONMENT
        | {
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_LAMBDA_FUNCTION_NAME": "shiplap-schedule",
            "PYTHONDONTWRITEBYTECODE": "1",  # what is not in the layers is not compiled once and for all either
            **{
                f"SHIPLAP_{name}": "x"
                for name in (
                    "STATE_TABLE",
                    "CAPACITY_TABLE",
                    "BUCKET",
                    "BUS",
                    "LIFECYCLE_QUEUE_URL",
                    "DEAD_LETTER_QUEUE_URL",
                )
            },
        }
    )


def unpacked(work: Path, *, live: bool) -> list[str]:
    """The folders that a function imports from: its own, and the layers of an install with one cluster."""
    demo = ClusterSettings(
        name="demo",
        region="eu-west-1",
        endpoint="https://127.0.0.1:1",
        token="x",  # noqa: S106 - of nothing
        live_manifests=live,
    )
    for layer in (
        layers.dependencies(layers.HERE),
        layers.library(layers.HERE),
        layers.settings(Settings(clusters=(demo,))),
    ):
        shared = layers.unpack(layer, work)
    return [str(ROOT / "functions" / "schedule"), str(shared)]


def run(folders: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", *options, "-c", PROGRAM, *folders]
    return subprocess.run(  # noqa: S603 - our own program
        command, capture_output=True, text=True, check=True, env=environment()
    )


def import_times(report: str) -> list[tuple[float, str]]:
    """Milliseconds each package takes by itself, everything below it included but other packages, largest first."""
    own: dict[str, float] = {}
    for self_us, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", report):
        parts = name.split(".")
        package = ".".join(parts[:2]) if parts[0] in ("shiplap", "aws_lambda_powertools") else parts[0]
        package = "standard library" if package.lstrip("_") in STANDARD or package in STANDARD else package
        own[package] = own.get(package, 0.0) + int(self_us) / 1000
    return sorted(((ms, name) for name, ms in own.items()), reverse=True)


STANDARD = {name.lstrip("_") for name in sys.stdlib_module_names}


def main() -> int:
    with tempfile.TemporaryDirectory() as files, tempfile.TemporaryDirectory() as cluster:
        folders, live_folders = unpacked(Path(files), live=False), unpacked(Path(cluster), live=True)
        run(folders)  # reads the files into the machine's cache
        run(live_folders)
        pairs = [(json.loads(run(folders).stdout), json.loads(run(live_folders).stdout)) for _ in range(SAMPLES)]
        report = run(folders, "-X", "importtime").stderr
    samples = [of_files for of_files, _ in pairs]

    totals = sorted(sum(sample["ms"]) for sample in samples)
    median = statistics.median(totals)
    print(f"cold start of schedule, Python {sys.version.split()[0]}, median of {SAMPLES} processes")
    for number, phase in enumerate(PHASES):
        print(f"  {phase:30} {statistics.median(sample['ms'][number] for sample in samples):7.1f} ms")
    print(f"  {'all':30} {median:7.1f} ms   from {totals[0]:.0f} to {totals[-1]:.0f}, bar {BAR_MS}")
    keep("cold start of schedule, import and clients", median, "ms", bar=BAR_MS)
    cpu = statistics.median(sample["cpu_ms"] for sample in samples)
    print(f"  {'processor time, all of it':30} {cpu:7.1f} ms   with the interpreter's start")

    live_phase = statistics.median(live["ms"][len(PHASES)] for _, live in pairs)
    live_cpu = statistics.median(live["live_cpu_ms"] for _, live in pairs)
    live_all = statistics.median(live["cpu_ms"] for _, live in pairs)
    print(f"\nwith manifests: cluster, {SAMPLES} pairs of processes")
    print(f"  {LIVE_PHASE:30} {live_phase:7.1f} ms")
    print(f"  {'processor time of that':30} {live_cpu:7.1f} ms   bar {LIVE_BAR_MS}")
    print(f"  {'processor time, all of it':30} {live_all:7.1f} ms   with the interpreter's start")

    warm = warm_invocation.samples(SAMPLES)
    all_ms, launch_ms = (statistics.median(sample[place] for sample in warm) for place in (0, 1))
    recorded = max(sample.recorded_bytes for sample in warm)
    print("\nwarm invocation, one pending pod to one launch, any type of the catalogue, fakes instead of AWS")
    print(f"  {'processor time, all of it':30} {all_ms:7.1f} ms   bar {WARM_BAR_MS}")
    print(f"  {'of it before CreateFleet':30} {launch_ms:7.1f} ms   bar {LAUNCH_BAR_MS}")
    print(f"  {'recorded':30} {recorded:7,} bytes   bar {RECORD_BAR_BYTES:,}")

    keep("warm schedule, one pod to one launch", all_ms, "ms", bar=WARM_BAR_MS)
    keep("of it before CreateFleet", launch_ms, "ms", bar=LAUNCH_BAR_MS)
    keep("recorded for a decision", recorded, "bytes", bar=RECORD_BAR_BYTES)
    print("\nimporting, by package, milliseconds of its own (measuring makes it slower)")
    for ms, name in import_times(report)[:SHOWN_MODULES]:
        print(f"  {name:30} {ms:7.1f}")

    modules = set(samples[0]["modules"])
    needless = [name for name in NEVER if name in modules]
    print(f"\nimported without need: {', '.join(needless) or 'nothing'}")
    warm_missed = all_ms > WARM_BAR_MS or launch_ms > LAUNCH_BAR_MS or recorded > RECORD_BAR_BYTES
    return int(median > BAR_MS or live_cpu > LIVE_BAR_MS or bool(needless) or warm_missed)


if __name__ == "__main__":
    sys.exit(main())
