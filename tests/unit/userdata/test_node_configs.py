"""The NodeConfigs of AL2023, decoded strictly by the Go types of nodeadm and of the kubelet.

nodeadm/ holds a program of a few lines, built once per version of it into build/. A cold build compiles 144 packages,
which takes most of a minute of processor time; later runs take none. Nobody waits for the program itself, so the
compiler does not optimise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from email import message_from_string
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.aws.userdata.render import NODE_CONFIG, user_data
from shiplap.kubernetes.objects import Taint
from tests.registries import leave_out_if_unreachable
from tests.thoroughness import draws
from tests.unit.userdata.written_user_data import FULL_KUBELET, GOLDEN, PLAIN

pytestmark = pytest.mark.thorough

SOURCE = Path(__file__).parent / "nodeadm"
CACHE = Path(__file__).parents[3] / "build" / "nodeadm"

Check = Callable[..., list[str]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Return a function that finds the fault of each of some documents; the fault is empty when there is none."""
    program = _built()

    def run(*documents: str) -> list[str]:
        folder = tmp_path_factory.mktemp("configs")
        paths = [folder / f"{number}.yaml" for number in range(len(documents))]
        for path, document in zip(paths, documents, strict=True):
            path.write_text(document)
        done = subprocess.run([program, *paths], capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.split("\n")[:-1]

    return run


def _built() -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, and nodeadm's types are Go")
    digest = blake2s(digest_size=8)
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.read_bytes())
    program = CACHE / digest.hexdigest()
    if not program.exists():
        build = [go, "build", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", "-o", program, "."]
        done = subprocess.run(build, cwd=SOURCE, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            leave_out_if_unreachable(done.stderr, "what nodeadm is built of")
        assert done.returncode == 0, done.stderr
    return program


def node_configs(text: str) -> list[str]:
    """The NodeConfigs in a node's user data."""
    parts = message_from_string(text).walk()
    return [str(part.get_payload()) for part in parts if part.get_content_type() == NODE_CONFIG]


def rendered(**changes: Any) -> str:
    """The one NodeConfig that Shiplap writes."""
    *_, own = node_configs(user_data(msgspec.structs.replace(PLAIN, **changes)))
    return own


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"kubelet": FULL_KUBELET}, id="kubelet settings"),
        pytest.param({"raid0": True}, id="instance store"),
        pytest.param({"labels": {}, "taints": (), "max_pods": 0}, id="bare"),
        pytest.param({"service_cidr": "fd00:10::/108", "dns": "fd00:10::a"}, id="IPv6"),
        pytest.param({"kubelet": {"featureGates": {"DynamicResourceAllocation": True}}}, id="feature gates"),
    ],
)
def test_nodeadm_and_the_kubelet_know_every_field(check: Check, changes: dict[str, Any]) -> None:
    assert check(rendered(**changes)) == [""]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("al2023*.txt")))
def test_the_golden_files_hold_node_configs_that_nodeadm_knows(check: Check, name: str) -> None:
    found = node_configs((GOLDEN / name).read_text())
    assert found
    assert check(*found) == [""] * len(found)


KEYS = st.from_regex(
    r"[a-z]([a-z0-9.-]{0,20}[a-z0-9])?(/[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?)?", fullmatch=True
)
VALUES = st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,30}[A-Za-z0-9])?)?", fullmatch=True)
TAINTS = st.builds(Taint, KEYS, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]), VALUES)
KUBELETS = st.sets(st.sampled_from(sorted(FULL_KUBELET))).map(
    lambda keys: {key: FULL_KUBELET[key] for key in sorted(keys)}
)
CONFIGS = st.builds(
    rendered,
    labels=st.dictionaries(KEYS, VALUES, max_size=5),
    taints=st.lists(TAINTS, max_size=4).map(tuple),
    max_pods=st.integers(0, 737),
    kubelet=KUBELETS,
    raid0=st.booleans(),
)


@settings(max_examples=draws(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(CONFIGS, min_size=20, max_size=20))
def test_whatever_nodes_are_told_nodeadm_knows(check: Check, documents: list[str]) -> None:
    assert check(*documents) == [""] * len(documents)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda spec: spec["cluster"].update(apiServer="https://x"), "apiServer"),
        (lambda spec: spec["kubelet"].update(flags="--node-labels=a=b"), "flags"),
        (lambda spec: spec["kubelet"]["config"].update(maxPod=3), "maxPod"),
        (lambda spec: spec["kubelet"]["config"].update(maxPods="3"), "maxPods"),
        (lambda spec: spec.update(instance={"localStorage": {"strategy": "RAID5"}}), "RAID5"),
        (lambda spec: spec["cluster"].update(certificateAuthority="no base64!"), "base64"),
    ],
)
def test_a_field_that_is_misspelt_or_of_a_wrong_type_is_found(
    check: Check, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    document = json.loads(rendered())
    change(document["spec"])
    (wrong,) = check(json.dumps(document))
    assert says in wrong


def test_another_kind_or_version_is_found(check: Check) -> None:
    other = json.loads(rendered()) | {"apiVersion": "node.eks.aws/v1"}
    assert "node.eks.aws/v1" in check(json.dumps(other))[0]
