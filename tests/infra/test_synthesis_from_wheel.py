"""The wheel alone, in an environment of its own outside of the checkout: it synthesises what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.infra.synthesised import INSTALL
from tests.registries import leave_out_if_unreachable
from tools.dist import declared
from tools.locked_packages import closure, locks

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tests.nodejs import NODE

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from aws_cdk import App

ROOT = Path(__file__).parents[2]
UV = (sys.executable, "-m", "uv")
UV_CACHE = subprocess.run([*UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


class Environment:
    """A virtual environment with the wheel and its extra `cdk`, and a folder for everything it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name[:3] == "UV_"}
        # Nothing may be taken from a network: what `make setup` has installed is in uv's cache.
        self._variables = kept | {
            "JSII_NODE": str(NODE),
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
            "UV_CACHE_DIR": UV_CACHE,
            "UV_LINK_MODE": "hardlink",
            "UV_OFFLINE": "1",
            "XDG_CACHE_HOME": str(folder / "cache"),
            # Here uv comes from pip, so its own cache lacks it.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        }

    def run(self, *command: str | Path, **variables: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own
            command, cwd=self.folder, env=self._variables | variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            leave_out_if_unreachable(done.stderr, "what the wheel needs")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self) -> None:
        """Build the wheel and install it with the versions that the checkout has."""
        subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", self.folder],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        (wheel,) = self.folder.glob("*.whl")
        assert wheel.stat().st_size < 10 * 2**20
        self.run(*UV, "venv", "--quiet", "--python", sys.executable, "venv")
        needed = closure(declared(wheel), ["cdk"]) - {"uv"}
        (self.folder / "locked.txt").write_text("\n".join(locks("dev.txt")[name] for name in sorted(needed)))
        install = (*UV, "pip", "install", "--quiet", "--no-deps", "--python", str(self.python))
        self.run(*install, "--require-hashes", "--requirements", "locked.txt")
        self.run(*install, wheel)
        self.run(*UV, "pip", "check", "--quiet", "--python", str(self.python))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("elsewhere"))
    made.install()
    return made


def bodies(assembly: Path) -> dict[str, Any]:
    """Templates and lists of assets by file; the hashes of layers and functions are in both."""
    return {path.name: json.loads(path.read_text()) for path in _written(assembly)}


def _written(assembly: Path) -> Iterator[Path]:
    yield from assembly.glob("*.template.json")


def test_the_wheel_synthesises_the_checkouts_templates_with_the_same_layers(environment: Environment, app: App) -> None:
    assembly = environment.folder / "cdk.out"
    context = json.dumps({"settings": str(INSTALL)})
    environment.run(environment.python, "-I", "-m", "shiplap_cdk", CDK_OUTDIR=str(assembly), CDK_CONTEXT_JSON=context)

    expected = bodies(Path(app.synth().directory))
    found = bodies(assembly)
    assert len(expected) > 1
    assert found == expected
    kept = {path.name.partition("-")[0] for path in (environment.folder / "cache" / "shiplap" / "layers").glob("*.zip")}
    assert kept == {"dependencies", "library", "settings"}


def test_the_wheel_says_its_version_and_commit_and_has_all_that_its_commands_read(environment: Environment) -> None:
    shiplap = environment.python.with_name("shiplap")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607

    assert f" ({head.stdout.strip()}" in environment.run(shiplap, "--version")
    assert "--rbac" in environment.run(shiplap, "doctor", "--help")


def test_beside_settings_written_by_hand_init_writes_an_app_that_synthesises_and_a_template_needs_none(
    environment: Environment,
) -> None:
    shiplap, folder = environment.python.with_name("shiplap"), environment.folder / "by-hand"
    folder.mkdir()
    settings = folder / "shiplap.yaml"
    settings.write_text("region: eu-west-1\nclusters: [{name: prod, manifests: cluster, nodeRoles: [nodes]}]\n")
    environment.run(shiplap, "install", "template", "--settings", settings, "--to", folder / "template")
    assert (folder / "template" / "rbac.yaml").exists()

    environment.run(shiplap, "init", "--to", folder)
    app = json.loads((folder / "cdk.json").read_text())["app"].split()
    assert app[0] == "python"
    context = json.dumps({"settings": str(settings)})
    environment.run(environment.python, *app[1:], CDK_OUTDIR=str(folder / "cdk.out"), CDK_CONTEXT_JSON=context)
    assert list((folder / "cdk.out").glob("Shiplap.template.json"))
    for name in ("rbac.yaml", "rbac-cluster-manifests.yaml", "rbac-deletion-costs.yaml", "rbac-rollouts.yaml"):
        assert (folder / "docs" / name).read_text() == (ROOT / "docs" / name).read_text()


def test_the_wheel_has_the_locks_by_which_npm_installs_the_cdks_command_line(environment: Environment) -> None:
    said = "from shiplap_cdk.shipped_files import shipped; print(shipped('package-lock.json').read_text())"
    locked = json.loads(environment.run(environment.python, "-I", "-c", said))
    assert locked["packages"]["node_modules/aws-cdk"]["integrity"].startswith("sha512-")
