"""Builds the Lambda layers without Docker: same inputs, same bytes.

Three layers, by how often they change: third-party packages for the function's platform, installed by uv from the
locked hashes; the library; the settings. Each is a zip made here rather than by the CDK, so that order, dates and modes
are ours, and is kept in a cache (`BUILD`) by a hash of its inputs: an unchanged layer costs nothing.

Bytecode is shipped because it halves a cold start. It is marked `unchecked-hash`: unpacking changes the dates of source
files, and bytecode checked by date would be compiled anew in every cold start.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import botocore
import msgspec

import shiplap
from shiplap.errors import ShiplapError
from shiplap.settings import Settings
from shiplap_cdk.artifacts import library_source, service_models
from shiplap_cdk.shipped_files import install_of, shipped, work_folder

BUILD = work_folder("layers")
REQUIREMENTS = shipped("requirements/lambda.txt")
LIBRARY = Path(shiplap.__file__).resolve().parent

# Zip knows no earlier date.
_DATE = (1980, 1, 1, 0, 0, 0)

# What packages in the layers expect of a function's environment. numpy's linear algebra, which nothing here uses, would
# start a thread for each processor when it is imported.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


# Folders of third-party packages that nothing imports at run time.
_UNUSED_FOLDERS = ("tests", "f2py", "include", "examples", "__pycache__", "bin")
_UNUSED_SUFFIXES = (".pyi", ".pyx", ".pxd", ".a", ".h", ".c", ".exe")
_KEPT_METADATA = ("METADATA", "LICENSE", "LICENSE.txt", "NOTICE")


_KEPT_S = 7 * 24 * 3600


class Target(NamedTuple):
    """The target of a layer: uv's name of the platform (empty: this machine) and the Python version."""

    platform: str
    python: str

    @property
    def bytecode(self) -> bool:
        """True if this interpreter writes bytecode that the target's can read."""
        return self.python == f"{sys.version_info.major}.{sys.version_info.minor}"


LAMBDA = Target("aarch64-manylinux_2_28", "3.13")
HERE = Target("", f"{sys.version_info.major}.{sys.version_info.minor}")


class Layer(NamedTuple):
    """A built layer. `digest` is of the unpacked content, so that it does not depend on how zlib was compiled."""

    path: Path
    digest: str


class Artifacts(NamedTuple):
    """The layers as built."""

    dependencies: Layer
    library: Layer
    settings: Layer

    @classmethod
    def built(cls, compiled: Settings, target: Target = LAMBDA) -> Artifacts:
        """Build what is not built yet. Raises ShiplapError when a layer cannot be built."""
        return cls(dependencies(target), library(target), settings(compiled))


def dependencies(target: Target, build: Path = BUILD) -> Layer:
    """Third-party packages by `requirements/lambda.txt`, botocore cut to what the library calls.

    uv takes them from the user's index, or from the folder that `SHIPLAP_WHEELHOUSE` names, and checks their hashes.
    Raises ShiplapError when uv cannot install them.
    """
    sources = [path for path in _library_files() if path.suffix == ".py"]
    builders = [Path(__file__).read_bytes(), Path(service_models.__file__).read_bytes()]
    inputs = [REQUIREMENTS.read_bytes(), *_operations(sources), *builders]

    def fill(folder: Path) -> None:
        _install(folder, target)
        data = folder / "botocore" / "data"
        service_models.trim(data, service_models.called(sources, data))

    return _built("dependencies", target, inputs, build, fill)


def _operations(sources: Sequence[Path]) -> Iterator[bytes]:
    """Yield bytes that show which operations of botocore the layer holds.

    Only the locked botocore, which the layer gets, knows them all. Where this environment has another one, the whole
    library tells; it seldom changes there.
    """
    if f"botocore=={botocore.__version__} " in REQUIREMENTS.read_text():
        yield json.dumps(service_models.called(sources)).encode()
    else:
        yield from (path.read_bytes() for path in sources)


def library(target: Target, build: Path = BUILD) -> Layer:
    """The package `shiplap` without its docstrings; the same for every platform."""
    files = list(_library_files())
    inputs = [part for path in files for part in (str(path.relative_to(LIBRARY)).encode(), path.read_bytes())]

    def fill(folder: Path) -> None:
        for path in files:
            copy = folder / "shiplap" / path.relative_to(LIBRARY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(_shipped_source(path) if path.suffix == ".py" else path.read_bytes())

    inputs += [Path(module).read_bytes() for module in (__file__, library_source.__file__)]
    return _built("library", Target("any", target.python), inputs, build, fill, docstrings=False)


def _shipped_source(path: Path) -> bytes:
    """Raises ShiplapError for what is no Python."""
    try:
        return library_source.without_docstrings(path.read_text(encoding="utf-8")).encode()
    except SyntaxError as error:
        raise ShiplapError(f"a layer's source does not compile: {path.name}: {error}") from error


def settings(compiled: Settings, build: Path = BUILD) -> Layer:
    """The package `shiplap_settings` with one JSON document; the same for every platform."""
    document = msgspec.json.format(msgspec.json.encode(compiled, order="deterministic"), indent=1)

    def fill(folder: Path) -> None:
        package = folder / "shiplap_settings"
        package.mkdir()
        (package / "__init__.py").write_text('"""The settings of this install, compiled by its stack."""\n')
        (package / "settings.json").write_bytes(document)

    return _built("settings", Target("any", ""), [document, Path(__file__).read_bytes()], build, fill)


def unpack(layer: Layer, folder: Path) -> Path:
    """Unpack a layer as a function sees it below /opt; returns the folder that goes on `sys.path`."""
    with zipfile.ZipFile(layer.path) as archive:
        archive.extractall(folder)
    return folder / "python"


def _library_files() -> Iterator[Path]:
    for path in sorted(LIBRARY.rglob("*")):
        inside = path.relative_to(LIBRARY)
        if path.is_file() and "__pycache__" not in inside.parts:
            yield path


def _built(
    name: str,
    target: Target,
    inputs: Iterable[bytes],
    build: Path,
    fill: Callable[[Path], None],
    *,
    docstrings: bool = True,
) -> Layer:
    """The layer from `build`, or made by filling an empty folder; safe when several processes build it at once."""
    key = hashlib.sha256(repr((target, sysconfig.get_platform(), importlib.util.MAGIC_NUMBER)).encode())
    for part in inputs:
        key.update(hashlib.sha256(part).digest())
    archive = build / f"{name}-{target.platform or sys.platform}-{key.hexdigest()[:16]}.zip"
    digest = archive.with_suffix(".sha256")
    if not (archive.exists() and digest.exists()):
        build.mkdir(parents=True, exist_ok=True)
        _forget_old(build)
        with tempfile.TemporaryDirectory(dir=build) as work:
            folder = Path(work) / "python"
            folder.mkdir()
            fill(folder)
            if target.bytecode:
                _compile(folder, docstrings=docstrings)
            content = _zip(folder, Path(work) / "layer.zip")
            (Path(work) / "digest").write_text(content)
            # The digest appears last: it says that the archive is whole.
            Path(work, "layer.zip").replace(archive)
            Path(work, "digest").replace(digest)
    return Layer(archive, digest.read_text())


def _forget_old(build: Path) -> None:
    """Every edit of the library makes a new layer; those of earlier days are removed."""
    for path in build.iterdir():
        if path.is_file() and time.time() - path.stat().st_mtime > _KEPT_S:
            path.unlink(missing_ok=True)  # another process may be faster


def _install(folder: Path, target: Target) -> None:
    command = [*_uv(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--target", str(folder), "--requirements", str(REQUIREMENTS)]
    # Copies, because what uv would link from its cache is about to be changed in place.
    command += ["--python", sys.executable, "--link-mode", "copy"]
    wheelhouse = os.environ.get("SHIPLAP_WHEELHOUSE")
    if wheelhouse:
        command += ["--no-index", "--find-links", wheelhouse]
    if target.platform:
        command += ["--python-platform", target.platform, "--python-version", target.python]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        raise ShiplapError(f"layer dependencies: uv could not install {REQUIREMENTS.name}: {done.stderr.strip()}")
    for path in sorted(folder.rglob("*"), reverse=True):  # children before their folder
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif _is_unused(path.relative_to(folder)):
            path.unlink()


def _uv() -> Sequence[str]:
    """The command uv: of this environment, or the one on the PATH. Raises ShiplapError when there is none."""
    if importlib.util.find_spec("uv"):
        return (sys.executable, "-m", "uv")
    found = shutil.which("uv")
    if found is None:
        raise ShiplapError(f"layer dependencies: uv is needed to install them: {install_of('cdk')}")
    return (found,)


def _is_unused(path: Path) -> bool:
    parts = path.parts
    if parts[0].endswith(".dist-info"):
        return path.name not in _KEPT_METADATA
    if set(parts[:-1]) & set(_UNUSED_FOLDERS):
        return True
    return path.suffix in _UNUSED_SUFFIXES or path.name == ".lock"


def _compile(folder: Path, *, docstrings: bool) -> None:
    """Bytecode beside every source, naming it as the function will see it.

    Without docstrings it is an eighth smaller; assertions go with them, of which the library has none. One process of
    its own with a fixed hash seed: the order of sets, and which strings are shared, show in bytecode.
    """
    command = [sys.executable, "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(folder), "-p", "/opt/python", "-o", "0" if docstrings else "2", str(folder)]
    # Columns of expressions, which only underline a part of a line in a traceback, are a quarter of the bytecode.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONNODEBUGRANGES": "1"}
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise ShiplapError(f"a layer's source does not compile: {(done.stdout + done.stderr).strip()}")
    # Lambda's interpreter runs without -O and looks for the plain name only.
    for optimised in folder.rglob("*.opt-2.pyc"):
        optimised.rename(optimised.with_name(optimised.name.replace(".opt-2.", ".")))


def _zip(folder: Path, archive: Path) -> str:
    """Pack a folder under its own name; returns the digest of names and contents."""
    content = hashlib.sha256()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            entry = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            # Libraries are mapped, not run; nothing in a layer needs to be executable or writable.
            entry.external_attr = 0o100644 << 16
            data = path.read_bytes()
            content.update(entry.filename.encode() + b"\0" + hashlib.sha256(data).digest())
            out.writestr(entry, data)
    return content.hexdigest()


def main() -> None:
    """Build the layers of the library and its dependencies ahead of a synth, and say how large they are."""
    built = [layer for target in (LAMBDA, HERE) for layer in (dependencies(target), library(target))]
    for layer in dict.fromkeys(built):
        print(f"{layer.path.stat().st_size / 2**20:6.1f} MiB  {layer.path.name}")  # noqa: T201


if __name__ == "__main__":
    main()
