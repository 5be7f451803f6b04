"""Builds what a release consists of into `dist/`: wheel, sdist, bills of materials (CycloneDX) and their attestation,
Helm chart, GitHub Action, site, and the Terraform module of an example.

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
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tools import documentation_site
from tools.attestation import KEY_VARIABLE, attest, signing_key, statement
from tools.locked_packages import Package, closure, locks, packages

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "shiplap-cluster"
ACTION = ROOT / "action"
EXAMPLE = ROOT / "examples" / "one-cluster"
EXTRAS = ("cdk", "lab")

Document = Mapping[str, Any]


def build_release(folder: Path) -> list[Path]:
    """Build everything into a folder; returns the files.

    Raises ValueError for a signing key that is none, FileNotFoundError where MkDocs is missing, ShiplapError when the
    module cannot be made, subprocess.CalledProcessError when git, the builder or MkDocs fails.
    """
    key = signing_key()
    wheel, sdist, own, layers, *others = build(folder)
    version, epoch = wheel.name.split("-")[1], _epoch()
    with tempfile.TemporaryDirectory() as work:
        site = documentation_site.build(Path(work) / "site", epoch=epoch)
        others.append(pack(folder / f"shiplap-site-{version}.tgz", _tree(site, "shiplap-site"), epoch))
        module = Path(work) / "module"
        # It starts Node.js.
        from shiplap_cdk.install_document import read  # noqa: PLC0415
        from shiplap_cdk.terraform.module_files import write_module  # noqa: PLC0415

        write_module(read(EXAMPLE / "shiplap.yaml"), module)
        name = f"shiplap-terraform-{EXAMPLE.name}"
        others.append(pack(folder / f"{name}-{version}.tgz", _tree(module, name), epoch))
    archive = others[-1]
    claims = [
        statement([wheel, sdist], json.loads(own.read_text())),
        # The wheel holds the locks of the layers, and the archive the layers.
        statement([wheel, archive], json.loads(layers.read_text())),
    ]
    return [wheel, sdist, own, layers, *others, attest(folder, version, claims, key)]


def build(folder: Path) -> list[Path]:
    """Build what needs Python and git only: wheel, sdist, the two bills of materials, chart, Action.

    Raises subprocess.CalledProcessError when git or the builder fails.
    """
    epoch = _epoch()
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)  # noqa: S603
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    when = datetime.fromtimestamp(epoch, UTC)
    version = wheel.name.split("-")[1]
    needed = packages(closure(declared(wheel), EXTRAS) - {"shiplap"})
    bills = {
        f"shiplap-{version}.cdx.json": bill(_wheel(wheel, version), needed, when),
        f"shiplap-layers-{version}.cdx.json": bill(_layers(version), packages(locks("lambda.txt")), when),
    }
    for name, document in bills.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    chart = pack_chart(folder / f"{CHART.name}-{version}.tgz", epoch)
    # A repository of its own, which GitHub's marketplace wants, has these files at its root.
    files = {f"shiplap-action/{path.name}": path for path in (*_files(ACTION), ROOT / "LICENSE")}
    action = pack(folder / f"shiplap-action-{version}.tgz", files, epoch)
    return [wheel, sdist, *(folder / name for name in bills), chart, action]


def pack_chart(archive: Path, epoch: int) -> Path:
    """Pack the chart as `helm package` does, but for dates and modes; linked files are packed as files."""
    return pack(archive, _tree(CHART, CHART.name), epoch)


def _tree(folder: Path, name: str) -> dict[str, Path]:
    return {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(found)


def pack(archive: Path, files: Mapping[str, Path], epoch: int) -> Path:
    """Pack files under these names, with one date and mode."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as out,
    ):
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
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


def _epoch() -> int:
    return int(_said("git", "log", "-1", "--format=%ct"))


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def main() -> int:
    """Build into `dist/` and say what was built, and whether it is signed."""
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    try:
        built = build_release(folder)
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    for path in built:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.relative_to(ROOT)}  {path.stat().st_size / 2**20:.1f} MiB")  # noqa: T201
    if signing_key() is None:
        print(f"the attestation is unsigned: {KEY_VARIABLE} names no key")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
