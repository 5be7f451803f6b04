"""The layers: what is in them, that they are reproducible, and how large they are."""

from __future__ import annotations

import ast
import marshal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import botocore
import pytest

from shiplap.errors import ShiplapError
from shiplap.settings import ClusterSettings, Settings
from shiplap_cdk.artifacts import layers
from shiplap_cdk.artifacts.library_source import without_docstrings
from shiplap_cdk.artifacts.service_models import SERVICES

pytestmark = pytest.mark.thorough

MIB = 2**20
ENDPOINTS = Path(botocore.__file__).parent / "data" / "endpoints.json"
SETTINGS = Settings(clusters=(ClusterSettings(name="demo", region="eu-west-1"),))


@pytest.fixture(scope="module")
def shipped() -> layers.Layer:
    """The dependencies for Lambda, from `build/layers` when they were built before."""
    return layers.dependencies(layers.LAMBDA)


class _Rebuilt(NamedTuple):
    """A layer built anew, and a file of the installed packages before that."""

    layer: layers.Layer
    endpoints: bytes


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> _Rebuilt:
    """The dependencies for this machine, not taken from `build/layers`."""
    endpoints = ENDPOINTS.read_bytes()
    return _Rebuilt(layers.dependencies(layers.HERE, tmp_path_factory.mktemp("rebuilt")), endpoints)


def names(layer: layers.Layer) -> list[str]:
    with zipfile.ZipFile(layer.path) as archive:
        return archive.namelist()


def test_all_layers_together_are_small(shipped: layers.Layer) -> None:
    library = layers.library(layers.LAMBDA)

    assert shipped.path.stat().st_size + library.path.stat().st_size <= 60 * MIB
    assert library.path.stat().st_size <= 3_000_000, "a change of code uploads less than three megabytes"
    with zipfile.ZipFile(shipped.path) as archive:
        assert sum(entry.file_size for entry in archive.infolist()) <= 200 * MIB, "Lambda takes 250 MiB unpacked"


def test_dependencies_are_built_for_the_functions_processor(shipped: layers.Layer) -> None:
    libraries = [name for name in names(shipped) if name.endswith(".so")]

    assert libraries
    assert all("x86_64" not in name for name in libraries)
    with zipfile.ZipFile(shipped.path) as archive:
        machines = {archive.read(name)[18:20] for name in libraries}
    assert machines == {b"\xb7\x00"}, "ELF's number of AArch64"


def test_building_leaves_the_installed_packages_alone(rebuilt: _Rebuilt) -> None:
    """uv may link files from its cache, which other environments share."""
    assert ENDPOINTS.read_bytes() == rebuilt.endpoints
    assert b'"kms"' in rebuilt.endpoints


def test_dependencies_hold_only_the_services_that_are_called(shipped: layers.Layer) -> None:
    data = {
        name.split("/")[3]
        for name in names(shipped)
        if name.startswith("python/botocore/data/") and name.count("/") > 4
    }

    assert data == set(SERVICES)


def test_every_service_of_which_the_library_makes_clients_is_shipped() -> None:
    session = (layers.LIBRARY / "aws" / "session.py").read_text()
    made = {line.split('"')[1] for line in session.splitlines() if "Literal[" in line and '"' in line}

    assert made
    assert made <= set(SERVICES)


def test_the_library_leaves_out_what_only_a_persons_machine_runs() -> None:
    shipped = names(layers.library(layers.LAMBDA))
    packages = {name.split("/")[2] for name in shipped}

    assert {"manifests", "aws", "cluster", "flows", "scheduling"} <= packages
    assert {name.split("/")[1] for name in shipped} == {"shiplap"}


def test_the_library_is_reproducible(tmp_path: Path) -> None:
    first = layers.library(layers.HERE, tmp_path / "first")
    second = layers.library(layers.HERE, tmp_path / "second")

    assert first.path.name == second.path.name
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.digest == second.digest


def test_dependencies_are_reproducible(rebuilt: _Rebuilt) -> None:
    before = layers.dependencies(layers.HERE)

    assert rebuilt.layer.path != before.path
    assert rebuilt.layer.path.read_bytes() == before.path.read_bytes()


def source_of(compiled: str) -> str:
    """The source in a layer that a file of bytecode was made of."""
    folder, _, name = compiled.rpartition("/__pycache__/")
    return f"{folder}/{name.partition('.')[0]}.py"


def test_bytecode_knows_the_lines_of_stack_traces_and_no_columns(tmp_path: Path) -> None:
    layer = layers.library(layers.HERE, tmp_path)
    name = next(name for name in names(layer) if name.endswith(f"/pack.{sys.implementation.cache_tag}.pyc"))
    with zipfile.ZipFile(layer.path) as archive:
        code = marshal.loads(archive.read(name)[16:])  # noqa: S302 - our own bytecode

    positions = list(code.co_positions())

    assert {line for line, *_ in positions} - {None, 1}
    assert all(start is None and end is None for _, _, start, end in positions)


def test_bytecode_is_never_checked_and_names_no_path_of_this_machine(tmp_path: Path) -> None:
    layer = layers.library(layers.HERE, tmp_path)
    compiled = [name for name in names(layer) if name.endswith(".pyc")]

    assert len(compiled) == len([name for name in names(layer) if name.endswith(".py")])
    with zipfile.ZipFile(layer.path) as archive:
        for name in compiled:
            data = archive.read(name)
            assert data[4:8] == b"\x01\x00\x00\x00", "the flags of an unchecked hash"
            code = marshal.loads(data[16:])  # noqa: S302 - our own bytecode
            assert code.co_filename.startswith("/opt/python/shiplap/")
            own = layers.LIBRARY.parent / source_of(name).removeprefix("python/")
            said = ast.get_docstring(ast.parse(own.read_text()), clean=False)
            assert said is None or said not in code.co_consts


def test_sources_have_each_statement_in_its_line_and_no_docstring(tmp_path: Path) -> None:
    """Stack traces show lines of the layer, and people look them up in the repository."""
    layer = layers.library(layers.HERE, tmp_path)
    with zipfile.ZipFile(layer.path) as archive:
        for name in (name for name in archive.namelist() if name.endswith(".py")):
            own = (layers.LIBRARY.parent / name.removeprefix("python/")).read_text().split("\n")
            shipped_lines = archive.read(name).decode().split("\n")
            assert len(shipped_lines) == len(own), name
            changed = {line for mine, line in zip(own, shipped_lines, strict=True) if mine != line}
            assert {line.strip() for line in changed} <= {"", "..."}, name
            assert ast.dump(_undescribed(shipped_lines)) == ast.dump(_undescribed(own)), name
            statements = [item for item in ast.walk(ast.parse("\n".join(shipped_lines))) if isinstance(item, ast.stmt)]
            assert [item for item in statements if _says_only(item) and item.value.value is not ...] == [], name  # type: ignore[attr-defined]


def _undescribed(lines: list[str]) -> ast.Module:
    """The syntax without strings that are statements, and without `...`."""
    tree = ast.parse("\n".join(lines))
    for block in ast.walk(tree):
        if isinstance(getattr(block, "body", None), list):
            kept = [item for item in block.body if not _says_only(item)]  # type: ignore[attr-defined]
            block.body = kept  # type: ignore[attr-defined]
    return tree


def _says_only(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is ...)


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ('"""Says."""\nx = 1\n', "\nx = 1\n"),
        ('x = 1\n"""Is\n\none."""\ny = 2', "x = 1\n\n\n\ny = 2"),
        ('class A(B):\n    """Says."""\n', "class A(B):\n    ...\n"),
        ('def f():\n    """Sé\n    ys."""\n    return """a"""', 'def f():\n\n\n    return """a"""'),
        ('def f(): "Says."\n', 'def f(): "Says."\n'),
        ('x = 1; "is"\n', 'x = 1; "is"\n'),
    ],
)
def test_only_descriptions_that_stand_alone_are_left_out(source: str, kept: str) -> None:
    assert without_docstrings(source) == kept


def test_bytecode_is_left_out_when_this_interpreter_writes_another_kind(tmp_path: Path) -> None:
    other = layers.Target("", "3.99")

    layer = layers.library(other, tmp_path)

    assert not [name for name in names(layer) if name.endswith(".pyc")]


def test_settings_change_the_layer_and_nothing_else_does(tmp_path: Path) -> None:
    one = layers.settings(SETTINGS, tmp_path)
    same = layers.settings(SETTINGS, tmp_path / "elsewhere")
    other = layers.settings(Settings(), tmp_path)

    assert one.path.read_bytes() == same.path.read_bytes()
    assert one.digest != other.digest
    assert names(one) == ["python/shiplap_settings/__init__.py", "python/shiplap_settings/settings.json"]


def test_a_function_finds_library_and_settings_in_its_layers(tmp_path: Path) -> None:
    """In a fresh interpreter that sees the layers and the standard library only."""
    dependencies = layers.dependencies(layers.HERE)
    parts = (dependencies, layers.library(layers.HERE), layers.settings(SETTINGS))
    for layer in parts:
        path = layers.unpack(layer, tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import botocore.session, msgspec, numpy, urllib3, shiplap.settings\n"
        "assert all(sys.path[0] in m.__file__ for m in (botocore, msgspec, numpy, urllib3, shiplap))\n"
        "for service in ('dynamodb', 'ec2', 'events', 's3', 'sqs', 'ssm', 'pricing', 'eks', 'sts'):\n"
        "    botocore.session.get_session().create_client(service, region_name='eu-west-1')\n"
        "print(shiplap.settings.load().clusters[0].name)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "demo", done.stderr


def test_an_unchanged_layer_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = layers.library(layers.HERE, tmp_path)
    monkeypatch.setattr(layers, "_compile", lambda folder: pytest.fail("built again"))

    assert layers.library(layers.HERE, tmp_path) == first


def test_what_cannot_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = tmp_path / "lambda.txt"
    requirements.write_text("no-such-package==1.0  # without a hash\n")
    monkeypatch.setattr(layers, "REQUIREMENTS", requirements)

    with pytest.raises(ShiplapError, match=r"uv could not install lambda\.txt"):
        layers.dependencies(layers.HERE, tmp_path / "build")
    assert not list((tmp_path / "build").iterdir()), "nothing half-built stays"


def test_a_wheelhouse_is_the_only_place_that_packages_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheelhouse").mkdir()
    monkeypatch.setenv("SHIPLAP_WHEELHOUSE", str(tmp_path / "wheelhouse"))

    with pytest.raises(ShiplapError, match=r"uv could not install lambda\.txt"):
        layers.dependencies(layers.LAMBDA, tmp_path / "build")


def test_without_uv_the_command_that_installs_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(layers.shutil, "which", lambda name: None)
    monkeypatch.setattr(layers, "install_of", lambda extra: f"the command for {extra}")

    with pytest.raises(ShiplapError, match=r"uv is needed to install them: the command for cdk"):
        layers.dependencies(layers.LAMBDA, tmp_path)


def test_with_another_botocore_any_change_of_the_library_builds_the_dependencies_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not know an operation that the library calls and the layer's botocore has."""
    source = tmp_path / "new.py"
    source.write_text("one\n")
    exact = list(layers._operations([source]))
    source.write_text("two\n")
    assert list(layers._operations([source])) == exact

    monkeypatch.setattr(layers.botocore, "__version__", "1.0.0")
    before = list(layers._operations([source]))
    source.write_text("three\n")
    assert list(layers._operations([source])) != before


def test_source_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "shiplap"
    source.mkdir()
    (source / "broken.py").write_text("def\n")
    monkeypatch.setattr(layers, "LIBRARY", source)

    with pytest.raises(ShiplapError, match=r"broken\.py"):
        layers.library(layers.HERE, tmp_path / "build")
