"""User data of every family against golden files, and what merging with the user's own must keep.

`pytest --co` lists the cases; a golden file is written anew by deleting it and running with SHIPLAP_WRITE_GOLDEN=1.
"""

from __future__ import annotations

import json
import os
import tomllib
from email import message_from_string

import msgspec
import pytest

from shiplap.aws.userdata.bootstrap import Bootstrap, bootstrap_of_claim, settable_labels
from shiplap.aws.userdata.bottlerocket import binds_by_itself
from shiplap.aws.userdata.render import user_data
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.kubernetes.objects import ObjectMeta, Taint
from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.validation.user_data_rules import LIMIT_BYTES
from tests.builders.claims import node_claim
from tests.unit.userdata.written_user_data import FULL_KUBELET, GOLDEN, PLAIN

MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo "--// not a boundary"

--BOUNDARY
Content-Type: text/cloud-config
Merge-Type: list(append)

packages: [jq]

--BOUNDARY--
"""
NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  containerd:
    config: |
      [metrics]
      address = "127.0.0.1:1338"
"""
TOML = """
motd = "dropped: not a setting"

[settings.host-containers.admin]
enabled = true

[settings.kubernetes]
max-pods = 5
allowed-unsafe-sysctls = ["net.core.somaxconn"]

[settings.kubernetes.node-labels]
team = "theirs"
mine = "kept"

[settings.kubernetes.node-taints]
gone = ["x:NoSchedule"]

[settings.bootstrap-commands.100-own]
commands = [["echo", "hi"]]
essential = false
mode = "once"
"""


def change(**changes: object) -> Bootstrap:
    return msgspec.structs.replace(PLAIN, **changes)


CASES = {
    "al2023.txt": PLAIN,
    "al2023-kubelet-raid0.txt": change(kubelet=FULL_KUBELET, raid0=True),
    "al2023-mime.txt": change(custom=MIME),
    "al2023-node-config.txt": change(custom=NODE_CONFIG),
    "al2023-shell.txt": change(custom="#!/bin/bash\necho apiVersion: node.eks.aws/v1alpha1\n"),
    "al2.txt": change(family="AL2"),
    "al2-kubelet-raid0-ipv6.txt": change(family="AL2", kubelet=FULL_KUBELET, raid0=True, dns="fd00::a", custom=MIME),
    "bottlerocket.toml": change(family="Bottlerocket"),
    "bottlerocket-kubelet.toml": change(family="Bottlerocket", kubelet=FULL_KUBELET),
    "bottlerocket-merged-raid0.toml": change(family="Bottlerocket", custom=TOML, raid0=True, release="1.45.0"),
    "windows.txt": change(family="Windows2022", custom="<powershell>\nWrite-Host 'hi'\n</powershell>\n"),
    "custom.txt": change(family="Custom", custom="join --by 'own means'\n"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str) -> None:
    text = user_data(CASES[name])
    path = GOLDEN / name
    if os.environ.get("SHIPLAP_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def parts(text: str) -> list[tuple[str, str]]:
    message = message_from_string(text)
    assert not message.defects
    assert message.is_multipart()
    return [(part.get_content_type(), str(part.get_payload()).strip()) for part in message.get_payload()]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("custom", "types"),
    [
        ("", []),
        (MIME, ["text/x-shellscript", "text/cloud-config"]),
        (MIME.strip().removesuffix("--") + "\n", ["text/x-shellscript", "text/cloud-config"]),
        (NODE_CONFIG, ["application/node.eks.aws"]),
        ('{"kind": "NodeConfig", "apiVersion": "node.eks.aws/v1alpha1"}', ["application/node.eks.aws"]),
        ("#cloud-config\npackages: [jq]\n", ["text/cloud-config"]),
        ("echo hi\n", ["text/x-shellscript"]),
        ('Content-Type: text/x-shellscript; charset="us-ascii"\n\necho hi\n', ["text/x-shellscript"]),
    ],
)
def test_al2023_puts_the_users_parts_first(custom: str, types: list[str]) -> None:
    found = parts(user_data(change(custom=custom)))
    assert [kind for kind, _ in found] == [*types, "application/node.eks.aws"]
    config = json.loads(found[-1][1])
    assert config["spec"]["kubelet"]["config"]["maxPods"] == 29


def test_mime_parts_keep_their_text_and_headers() -> None:
    text = user_data(change(custom=MIME))
    found = parts(text)
    assert found[0][1] == '#!/bin/bash\necho "--// not a boundary"'
    assert found[1][1] == "packages: [jq]"
    assert "Merge-Type: list(append)" in text


def test_the_planned_number_of_pods_wins_over_the_written_one() -> None:
    config = json.loads(parts(user_data(change(kubelet=FULL_KUBELET)))[-1][1])["spec"]["kubelet"]["config"]
    assert config["maxPods"] == 29
    assert config["evictionHard"] == FULL_KUBELET["evictionHard"]


def test_bottlerocket_merges() -> None:
    settings = tomllib.loads(user_data(CASES["bottlerocket-merged-raid0.toml"]))["settings"]
    own = settings["kubernetes"]
    assert own["node-labels"] == {"karpenter.sh/nodepool": "default", "mine": "kept", "team": "a"}
    assert own["node-taints"] == {"dedicated": ["batch:NoSchedule"], "karpenter.sh/unregistered": [":NoExecute"]}
    assert own["max-pods"] == 29
    assert own["allowed-unsafe-sysctls"] == ["net.core.somaxconn"]
    assert settings["host-containers"] == {"admin": {"enabled": True}}
    assert set(settings["bootstrap-commands"]) == {"000-mount-instance-storage", "100-own"}
    assert "--dirs" in settings["bootstrap-commands"]["000-mount-instance-storage"]["commands"][1]


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("latest", True), ("1.46.0", True), ("v1.46.0", True), ("1.46.0-abc", True), ("2.0.0", True),
        ("1.45.9", False), ("1.46", False), ("", False), ("abc", False),
    ],
)  # fmt: skip
def test_which_bottlerocket_releases_bind_by_themselves(release: str, expected: bool) -> None:
    assert binds_by_itself(release) is expected


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (change(family="Bottlerocket", custom="a = = 1"), "UserDataInvalid"),
        (change(family="Bottlerocket", custom="settings = 1"), "UserDataInvalid"),
        (change(service_cidr=""), "ClusterCIDRResolutionFailed"),
        (change(custom='MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\nnothing'), "UserDataInvalid"),
        (change(family="Custom", custom="x" * (LIMIT_BYTES + 1)), "UserDataSizeLimitExceeded"),
    ],
)
def test_what_cannot_be_rendered_makes_the_node_class_not_ready(broken: Bootstrap, code: str) -> None:
    with pytest.raises(NodeClassNotReady) as raised:
        user_data(broken)
    assert raised.value.code == code


@pytest.mark.parametrize("year", ["2019", "2022", "2025"])
def test_all_windows_join_alike(year: str) -> None:
    assert user_data(change(family=f"Windows{year}")) == user_data(change(family="Windows2022"))


def test_settings_of_any_letters_stay_as_they_are() -> None:
    """TOML knows no surrogates, in which JSON writes what is beyond the first 65,536 letters."""
    custom = '[settings.motd]\n"grüße 👋" = "Ümläut \\u007f 👋"\n'
    made = tomllib.loads(user_data(change(family="Bottlerocket", custom=custom)))
    assert made["settings"]["motd"] == {"grüße 👋": "Ümläut \x7f 👋"}


def test_the_limit_counts_bytes() -> None:
    assert len(user_data(change(family="Custom", custom="x" * LIMIT_BYTES))) == LIMIT_BYTES
    with pytest.raises(NodeClassNotReady):
        user_data(change(family="Custom", custom="ü" * (LIMIT_BYTES // 2 + 1)))


def test_kubelets_set_only_labels_they_may_set() -> None:
    wanted = {
        "example.com/a": "1",
        "plain": "1",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/other": "1",
        "node-role.kubernetes.io/worker": "",
        "node-restriction.kubernetes.io/x": "1",
        "node.kubernetes.io/own": "1",
        "x.kubelet.kubernetes.io/own": "1",
        "x.k8s.io/a": "1",
        "topology.kubernetes.io/zone": "z",
    }
    assert list(settable_labels(wanted)) == [
        "example.com/a",
        "kubernetes.io/arch",
        "node.kubernetes.io/own",
        "plain",
        "topology.kubernetes.io/zone",
        "x.kubelet.kubernetes.io/own",
    ]


def test_user_data_of_a_claim_says_nothing_of_the_single_claim() -> None:
    node_class = EC2NodeClass(
        ObjectMeta(name="default"),
        EC2NodeClassSpec(
            ami_selector_terms=(AmiSelectorTerm(alias="bottlerocket@v1.46.0"),),
            kubelet={"clusterDNS": ["10.0.0.53"]},
            instance_store_policy="RAID0",
        ),
    )
    resolved = ResolvedNodeClass(
        "default", "Bottlerocket", (), (), (), "p", "https://e", "Q0E=", "10.0.0.0/16", "10.0.0.10"
    )
    claim = node_claim(
        cluster="demo",
        name="default-xyz",
        node_pool="default",
        node_class="default",
        labels={"team": "a", "karpenter.k8s.aws/instance-cpu": "4", "topology.kubernetes.io/zone": "a"},
        taints=(Taint("a", "NoSchedule"),),
        startup_taints=(Taint("b", "NoExecute"),),
    )
    found = bootstrap_of_claim(claim, node_class, resolved, "spot", 29)
    assert found.labels == {
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
        "karpenter.sh/nodepool": "default",
        "team": "a",
    }
    assert [taint.key for taint in found.taints] == ["a", "b", "karpenter.sh/unregistered"]
    assert (found.dns, found.release, found.raid0) == ("10.0.0.53", "v1.46.0", True)
    assert "default-xyz" not in user_data(found)
