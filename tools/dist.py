"""Builds what a release consists of into `dist/`: wheel, sdist, their bills of materials (CycloneDX), Helm chart.

The same commit gives the same bytes: dates are the commit's, order and modes are the builder's. The bill of the layers
is in the wheel's folder because they are installed when a stack is synthesised, from locks that the wheel holds.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tools.locked_packages import Package, closure, locks, packages

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "shiplap-cluster"
EXTRAS = ("cdk", "lab")

Document = Mapping[str, Any]


def build(folder: Path) -> list[Path]:
    """Build everything into a folder; returns the files.

    Raises subprocess.CalledProcessError when git or the builder fails.
    """
    epoch = _said("git", "log", "-1", "--format=%ct")
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)  # noqa: S603
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    when = datetime.fromtimestamp(int(epoch), UTC)
    version = wheel.name.split("-")[1]
    needed = packages(closure(declared(wheel), EXTRAS) - {"shiplap"})
    bills = {
        f"shiplap-{version}.cdx.json": bill(_wheel(wheel, version), needed, when),
        f"shiplap-layers-{version}.cdx.json": bill(_layers(version), packages(locks("lambda.txt")), when),
    }
    for name, document in bills.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    chart = pack_chart(folder / f"{CHART.name}-{version}.tgz", int(epoch))
    return [wheel, sdist, *(folder / name for name in bills), chart]


def pack_chart(archive: Path, epoch: int) -> Path:
    """Pack the chart as `helm package` does, but for dates and modes; linked files are packed as files."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as out,
    ):
        for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(path.relative_to(CHART.parent).as_posix())
            content = path.read_bytes()
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            out.addfile(entry, io.BytesIO(content))
    return archive


def declared(wheel: Path) -> list[Requirement]:
    """Return the dependencies that a wheel declares, with the markers of its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    return [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: ")]


def bill(about: Document, parts: Iterable[Package], when: datetime) -> Document:
    """A bill of materials in CycloneDX's JSON, version 1.6."""
    components = [_component(part) for part in parts]
    content = json.dumps([about, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": about},
        "components": components,
        "dependencies": [{"ref": about["bom-ref"], "dependsOn": [item["bom-ref"] for item in components]}],
    }


def _component(part: Package) -> Document:
    url = f"pkg:pypi/{part.name}@{part.version}"
    found = {"type": "library", "bom-ref": url, "name": part.name, "version": part.version, "purl": url}
    return found | ({"licenses": [{"license": {"name": part.licence}}]} if part.licence else {})


def _wheel(wheel: Path, version: str) -> Document:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    about = _component(Package("shiplap", version, "Apache-2.0"))
    return {**about, "type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]}


def _layers(version: str) -> Document:
    """The layer has no digest before a stack is synthesised: it depends on the interpreter that compiles bytecode."""
    name = "shiplap-layers"
    return {"type": "application", "bom-ref": f"{name}@{version}", "name": name, "version": version}


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def main() -> None:
    """Build into `dist/` and say what was built."""
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for path in build(folder):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.relative_to(ROOT)}  {path.stat().st_size / 2**20:.1f} MiB")  # noqa: T201


if __name__ == "__main__":
    main()
