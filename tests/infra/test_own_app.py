"""The constructs in somebody else's CDK app, by the example of docs/how-to/deployment.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shiplap_cdk
from shiplap.errors import ShiplapError
from shiplap_cdk.install_document import InstallConfig
from shiplap_lab.emulated_aws import cdk

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
MANIFESTS = Path(__file__).parent / "install" / "manifests" / "production"

try:
    NODE = cdk.executable()
except ShiplapError as error:
    pytest.skip(f"the CDK cannot run: {error}", allow_module_level=True)


def example() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "deployment.md").read_text(), re.DOTALL)
    text: str = found
    return text


def synthesised(folder: Path, settings: str) -> subprocess.CompletedProcess[str]:
    """Run the example as a program of its own."""
    (folder / "shiplap.yaml").write_text(settings)
    (folder / "app.py").write_text(example())
    path = [str(ROOT), str(ROOT / "layers" / "shiplap" / "python"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "CDK_OUTDIR": str(folder / "cdk.out")}
    environment |= {"JSII_NODE": str(NODE), "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20"}
    command = [sys.executable, "app.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.usefixtures("layers_built")
def test_the_documented_app_synthesises(tmp_path: Path) -> None:
    clusters = f"  - {{name: production, manifests: {MANIFESTS}}}\n"
    done = synthesised(tmp_path, f"region: eu-west-1\nclusters:\n{clusters}")

    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "cdk.out" / "Platform.template.json").read_text())
    made = [item["Properties"] for item in template["Resources"].values() if item["Type"] == "AWS::Lambda::Function"]
    memory = {item["FunctionName"]: item["MemorySize"] for item in made}
    assert memory.keys() >= {"shiplap-schedule", "shiplap-lifecycle", "shiplap-interrupt"}
    assert [name for name, mib in memory.items() if mib == 3008] == ["shiplap-schedule"]
    assert "PendingPodsBus" in template["Outputs"]


def test_the_package_names_what_it_offers() -> None:
    assert all(hasattr(shiplap_cdk, name) for name in shiplap_cdk.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = shiplap_cdk.Nonsense


def test_a_mistake_stops_the_apps_own_command_with_one_line_for_each(tmp_path: Path) -> None:
    """`npx aws-cdk synth` runs `python -m infra.app`: what it prints and its exit code are the user's answer."""
    (tmp_path / "nodes.yaml").write_text(
        (MANIFESTS / "nodes.yaml").read_text().replace("operator: In", "operator: Inn")
    )
    settings = tmp_path / "shiplap.yaml"
    for text, told in (
        ("region: eu-west-1\nclusters:\n  - name: a\n    manifests: nodes.yaml\n", "nodes.yaml:"),
        ("region: nowhere\nclusters:\n  - name: a\n    manifests: nodes.yaml\n", "shiplap.yaml:1: region: "),
        ("region: eu-west-1\nclusters:\n  - name: a\n    manifest: nodes.yaml\n", "shiplap.yaml:"),
    ):
        settings.write_text(text)
        context = json.dumps({"settings": str(settings)})
        environment = os.environ | {"CDK_CONTEXT_JSON": context, "JSII_NODE": str(NODE)}
        path = [str(ROOT), str(ROOT / "layers" / "shiplap" / "python"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path)
        command = [sys.executable, "-m", "infra.app"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603

        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_the_synthesis_warns_as_validate_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shiplap_cdk import synthesis  # noqa: PLC0415 - the CDK's binding starts Node.js when it is imported

    text = (MANIFESTS / "nodes.yaml").read_text()
    zone = "{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a]}"
    (tmp_path / "nodes.yaml").write_text(text.replace("requirements:\n", f"requirements:\n        - {zone}\n", 1))
    (tmp_path / "shiplap.yaml").write_text("region: eu-west-1\nclusters: [{name: a, manifests: nodes.yaml}]\n")
    monkeypatch.chdir(tmp_path)
    built: list[InstallConfig] = []
    monkeypatch.setattr(synthesis, "synthesise", lambda install, **_: built.append(install))
    assert synthesis.main() == 0
    assert len(built) == 1
    told = capsys.readouterr().err.splitlines()
    (warned,) = (line for line in told if line.endswith(": us-east-1a is in another Region than eu-west-1"))
    assert re.match(r"nodes\.yaml:\d+: warning: NodePool/", warned)
