"""Cluster Autoscaler's groups, flags and priorities on their way to NodePools."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import Document, read_text
from shiplap_cli.commands.migrate.migration import migrate
from shiplap_cli.commands.migrate.migration_findings import (
    FormerKind,
    MatchQuality,
    Migration,
    MigrationFinding,
    Naming,
)

OWNED = {"k8s.io/cluster-autoscaler/prod": "owned"}
BOOTSTRAP = "#!/bin/bash\n/etc/eks/bootstrap.sh prod --kubelet-extra-args '{}'\n"
TEMPLATE = {
    "LaunchTemplateId": "lt-1",
    "LaunchTemplateName": "web",
    "VersionNumber": 2,
    "DefaultVersion": True,
    "LaunchTemplateData": {
        "ImageId": "ami-0123456789abcdef0",
        "InstanceType": "m5.xlarge",
        "IamInstanceProfile": {"Arn": "arn:aws:iam::111122223333:instance-profile/nodes"},
        "SecurityGroupIds": ["sg-12345678"],
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 80, "VolumeType": "gp3"}}],
        "MetadataOptions": {"HttpTokens": "optional", "HttpPutResponseHopLimit": 3},
        "Monitoring": {"Enabled": True},
    },
}


def template(**data: Any) -> dict[str, Any]:
    return {"LaunchTemplateVersions": [TEMPLATE | {"LaunchTemplateData": TEMPLATE["LaunchTemplateData"] | data}]}


def boot(extra: str) -> dict[str, Any]:
    return template(UserData=base64.b64encode(BOOTSTRAP.format(extra).encode()).decode())


def scaling_group(name: str = "web", *, tags: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    written = {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 10,
        "DesiredCapacity": 3,
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "$Latest"},
        "VPCZoneIdentifier": "subnet-1, subnet-2",
        "Tags": [
            {"Key": key, "Value": value}
            for key, value in ({"k8s.io/cluster-autoscaler/prod": "owned"} | (tags or {})).items()
        ],
    }
    return {"AutoScalingGroups": [written | fields]}


def mixed(distribution: dict[str, Any], *overrides: dict[str, Any]) -> dict[str, Any]:
    reference = {"LaunchTemplateSpecification": {"LaunchTemplateName": "web", "Version": "2"}, "Overrides": overrides}
    return {"LaunchTemplate": reference, "InstancesDistribution": distribution}


def node_group(name: str = "core", **fields: Any) -> dict[str, Any]:
    written = {
        "nodegroupName": name,
        "clusterName": "prod",
        "scalingConfig": {"minSize": 2, "maxSize": 4, "desiredSize": 3},
        "instanceTypes": ["t3.large"],
        "subnets": ["subnet-1"],
        "amiType": "AL2023_x86_64_STANDARD",
        "capacityType": "ON_DEMAND",
        "nodeRole": "arn:aws:iam::111122223333:role/eks/core-role",
    }
    return {"nodegroup": written | fields}


def deployment(*flags: str) -> str:
    command = json.dumps(["./cluster-autoscaler", *flags])
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ca, namespace: kube-system}\n"
        "spec:\n  template:\n    spec:\n      containers:\n"
        f"        - {{name: ca, image: example.com/cluster-autoscaler:v1, command: {command}}}\n"
    )


def priorities(text: str) -> str:
    body = "\n".join(f"    {line}" for line in text.splitlines())
    return (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-autoscaler-priority-expander}\n"
        f"data:\n  priorities: |\n{body}\n"
    )


def moved(*sources: dict[str, Any] | str, taint: bool = False) -> Migration:
    texts = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    documents: list[Document] = [document for text in texts for document in read_text("aws", text)]
    return migrate(documents, Naming(taint=taint))


def pools_of(found: Migration) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in found.manifests if item["kind"] == "NodePool"}


def classes(found: Migration) -> dict[str, Any]:
    return {item["metadata"]["name"]: item["spec"] for item in found.manifests if item["kind"] == "EC2NodeClass"}


def requirements(found: Migration, name: str) -> dict[tuple[str, str], list[str]]:
    written = pools_of(found)[name]["spec"]["template"]["spec"]["requirements"]
    return {(entry["key"], entry["operator"]): entry["values"] for entry in written}


def about(found: Migration, text: str) -> MigrationFinding:
    (finding,) = (finding for finding in found.findings if text in f"{finding.source}: {finding.field}")
    return finding


def refused(found: Migration) -> list[str]:
    return [finding.note for finding in found.findings if "refuses" in finding.note]


def test_a_managed_node_group() -> None:
    group = node_group(
        labels={"tier": "core"}, taints=[{"key": "a", "value": "b", "effect": "NO_SCHEDULE"}], diskSize=50
    )
    found = moved(group)
    assert refused(found) == []
    assert (found.cluster, found.origin) == ("prod", "Cluster Autoscaler")
    pool = pools_of(found)["core-shiplap"]
    assert pool["spec"]["limits"] == {"nodes": "4"}
    assert pool["spec"]["template"]["metadata"]["labels"] == {"tier": "core"}
    assert pool["spec"]["template"]["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule", "value": "b"}]
    assert requirements(found, "core-shiplap") == {
        ("node.kubernetes.io/instance-type", "In"): ["t3.large"],
        ("karpenter.sh/capacity-type", "In"): ["on-demand"],
    }
    spec = classes(found)["core"]
    assert spec["role"] == "core-role"
    assert spec["amiSelectorTerms"] == [{"alias": "al2023@latest"}]
    assert spec["subnetSelectorTerms"] == [{"id": "subnet-1"}]
    assert spec["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "prod"}}]
    assert spec["blockDeviceMappings"][0]["ebs"]["volumeSize"] == "50Gi"
    (former,) = found.formers
    assert (former.origin, former.name, former.least, former.desired) == (FormerKind.NODE_GROUP, "core", 2, 3)
    assert about(found, "minimum size").match is MatchQuality.APPROXIMATE


@pytest.mark.parametrize(
    ("ami_type", "alias", "more"),
    [
        ("AL2_x86_64_GPU", "al2023@latest", {}),
        ("AL2023_ARM_64_STANDARD", "al2023@latest", {}),
        ("BOTTLEROCKET_ARM_64_NVIDIA", "bottlerocket@latest", {}),
        ("WINDOWS_FULL_2022_x86_64", "windows2022@latest", {("kubernetes.io/os", "In"): ["windows"]}),
    ],
)
def test_the_image_of_a_managed_group(ami_type: str, alias: str, more: dict[tuple[str, str], list[str]]) -> None:
    found = moved(node_group(amiType=ami_type))
    assert classes(found)["core"]["amiSelectorTerms"] == [{"alias": alias}]
    assert about(found, f"amiType {ami_type}").match is (
        MatchQuality.NONE if ami_type.startswith("AL2_") else MatchQuality.EXACT
    )
    assert more.items() <= requirements(found, "core-shiplap").items()
    assert refused(found) == []


@pytest.mark.parametrize(
    ("ami_type", "arch"), [("AL2023_ARM_64_STANDARD", "arm64"), ("BOTTLEROCKET_x86_64", "amd64"), ("CUSTOM", "")]
)
def test_a_group_of_attributes_keeps_the_architecture_of_its_image(ami_type: str, arch: str) -> None:
    by_attributes = template(InstanceType="", InstanceRequirements={"VCpuCount": {"Min": 2}})
    group = node_group(
        capacityType="SPOT", amiType=ami_type, instanceTypes=[], launchTemplate={"id": "lt-1", "version": "2"}
    )
    found = moved(group, by_attributes)
    written = requirements(found, "core-shiplap")
    assert written["karpenter.k8s.aws/instance-cpu", "Gt"] == ["1"]
    assert written.get(("kubernetes.io/arch", "In"), [""]) == [arch]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (scaling_group("old", LaunchTemplate=None, LaunchConfigurationName="lc"), "launch configuration lc: copy it"),
        (
            scaling_group("old", LaunchTemplate={"LaunchTemplateName": "gone", "Version": "7"}),
            "launch template gone, version 7, which was not given: add what `aws ec2 describe-launch-template-versions"
            " --launch-template-name gone --versions '7'` prints",
        ),
        (scaling_group("old", LaunchTemplate={"LaunchTemplateId": "lt-1", "Version": "1"}), "lt-1, version 1, which"),
        (scaling_group("old", LaunchTemplate=None), "names no instance type, nor a launch template"),
        (
            node_group("old", instanceTypes=[], launchTemplate={"id": "lt-9"}),
            "launch template lt-9, version $Default, which was not given",
        ),
        (node_group("old", instanceTypes=[], amiType="AL2023_ARM_64_STANDARD"), "names no instance type"),
    ],
)
def test_a_group_of_unknown_types_becomes_no_pool_of_every_type(group: dict[str, Any], said: str) -> None:
    found = moved(scaling_group(), group, template())
    assert (list(pools_of(found)), [former.name for former in found.formers]) == (["web-shiplap"], ["web"])
    finding = about(found, "old: left out")
    assert finding.match is MatchQuality.NONE
    assert said in finding.note
    with pytest.raises(InvalidInput, match="no group becomes a NodePool: old: "):
        moved(group, template())


def test_a_template_without_types_is_named() -> None:
    with pytest.raises(InvalidInput, match="its launch template names no instance type"):
        moved(scaling_group(), template(InstanceType=""))


BY_TAGS = "--node-group-auto-discovery=asg:tag="
ENABLED, PROD = "k8s.io/cluster-autoscaler/enabled", "k8s.io/cluster-autoscaler/prod"


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ([f"{BY_TAGS}{ENABLED},{PROD}"], ["core", "off", "web"]),
        ([f"{BY_TAGS}{ENABLED}=true,{PROD}"], ["core", "web"]),
        ([f"{BY_TAGS}{ENABLED}=false"], ["off"]),
        (["--nodes=0:3:bastion", "--nodes=0:9:eks-core-1"], ["bastion", "core"]),
        (["--nodes=0:3:bastion", f"{BY_TAGS}team=ml,{ENABLED}", f"{BY_TAGS}team=web"], ["bastion", "tagless", "web"]),
        (["--expander=random"], ["core", "off", "web"]),
        (None, ["core", "off", "web"]),
    ],
)
def test_only_groups_of_cluster_autoscaler_become_pools(flags: list[str] | None, kept: list[str]) -> None:
    other = {"k8s.io/cluster-autoscaler/staging": "owned", ENABLED: "true", "team": "ml"}
    groups = [
        scaling_group(tags={ENABLED: "true", "team": "web"}),
        scaling_group("off", tags={ENABLED: "false"}),
        scaling_group("bastion", Tags=[]),
        scaling_group("tagless", Tags=[{"Key": key, "Value": "ml"} for key in ("team", ENABLED)]),
        scaling_group("alien", Tags=[{"Key": key, "Value": value} for key, value in other.items()]),
        node_group(resources={"autoScalingGroups": [{"name": "eks-core-1"}]}),
    ]
    texts = [json.dumps(each) for each in (*groups, template())] + ([deployment(*flags)] if flags is not None else [])
    documents = [document for text in texts for document in read_text("aws", text)]
    found = migrate(documents, Naming(), cluster="prod")
    assert sorted(former.name for former in found.formers) == kept
    left = {item.source.split()[-1]: item.note for item in found.findings if item.field == "left out"}
    assert sorted((*left, *kept)) == ["alien", "bastion", "core", "off", "tagless", "web"]
    assert "cluster staging, not prod" in left["alien"]
    assert not any(name in command for step in found.steps for command in (*step.commands, *step.undo) for name in left)


def test_groups_of_two_clusters_need_the_name_of_one() -> None:
    other = scaling_group("api", Tags=[{"Key": "kubernetes.io/cluster/staging", "Value": "owned"}])
    with pytest.raises(InvalidInput, match="groups of clusters prod, staging: say which one by --cluster"):
        moved(scaling_group(), other, template())
    found = moved(scaling_group(), other, template(), deployment(BY_TAGS + PROD))
    assert (found.cluster, [former.name for former in found.formers]) == ("prod", ["web"])


@pytest.mark.parametrize("group", [scaling_group(), node_group(amiType="AL2_x86_64")])
def test_a_demand_for_tokens_that_the_group_did_not_make_is_told(group: dict[str, Any]) -> None:
    finding = about(moved(group, template(MetadataOptions=None)), "MetadataOptions.HttpTokens")
    assert (finding.match, "IMDSv1" in finding.note) == (MatchQuality.APPROXIMATE, True)
    for quiet in (moved(scaling_group(), template()), moved(node_group())):
        assert not any(item.field == "MetadataOptions.HttpTokens" for item in quiet.findings)


def test_a_group_that_says_no_type_has_that_of_eks() -> None:
    found = moved(node_group(instanceTypes=[]))
    assert requirements(found, "core-shiplap")["node.kubernetes.io/instance-type", "In"] == ["t3.medium"]


def test_a_self_managed_group_boots_from_its_image() -> None:
    found = moved(
        scaling_group(), boot("--node-labels=team=web,zone=a --register-with-taints=x=y:NoExecute --max-pods=30")
    )
    assert refused(found) == []
    pool = pools_of(found)["web-shiplap"]["spec"]["template"]
    assert pool["metadata"]["labels"] == {"team": "web", "zone": "a"}
    assert pool["spec"]["taints"] == [{"key": "x", "effect": "NoExecute", "value": "y"}]
    spec = classes(found)["web"]
    assert spec["amiFamily"] == "Custom"
    assert spec["amiSelectorTerms"] == [{"id": "ami-0123456789abcdef0"}]
    assert "bootstrap.sh" in spec["userData"]
    assert spec["kubelet"] == {"maxPods": 30}
    assert spec["instanceProfile"] == "nodes"
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-12345678"}]
    assert spec["subnetSelectorTerms"] == [{"id": "subnet-1"}, {"id": "subnet-2"}]
    assert spec["blockDeviceMappings"] == [
        {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "80Gi", "volumeType": "gp3"}}
    ]
    assert spec["metadataOptions"] == {"httpPutResponseHopLimit": 3, "httpTokens": "optional"}
    assert spec["detailedMonitoring"] is True
    assert requirements(found, "web-shiplap")["node.kubernetes.io/instance-type", "In"] == ["m5.xlarge"]


def test_nodes_that_could_not_register_do_not_map() -> None:
    """Only by the taint of its user data a Node is taken for that of an instance."""
    lost = about(moved(scaling_group(), boot("--max-pods=30")), "image ami-0123456789abcdef0")
    assert lost.match is MatchQuality.NONE
    assert "--register-with-taints=karpenter.sh/unregistered:NoExecute" in lost.note
    told = moved(scaling_group(), boot("--register-with-taints=karpenter.sh/unregistered:NoExecute"))
    assert about(told, "image ami-0123456789abcdef0").match is MatchQuality.APPROXIMATE


BOTTLEROCKET = """
[settings.kubernetes]
cluster-name = "prod"
max-pods = 40
[settings.kubernetes.node-labels]
"team" = "web"
[settings.kubernetes.node-taints]
dedicated = ["web:NoSchedule"]
"""
NODEADM = """
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config: {maxPods: 20}
    flags: ["--node-labels=team=web"]
"""


@pytest.mark.parametrize(
    ("text", "pods", "taints"),
    [(BOTTLEROCKET, 40, [{"key": "dedicated", "effect": "NoSchedule", "value": "web"}]), (NODEADM, 20, [])],
    ids=["bottlerocket", "nodeadm"],
)
def test_labels_that_other_families_are_told_at_boot(text: str, pods: int, taints: list[dict[str, str]]) -> None:
    found = moved(scaling_group(), template(UserData=base64.b64encode(text.encode()).decode()))
    pool = pools_of(found)["web-shiplap"]["spec"]["template"]
    assert pool["metadata"]["labels"] == {"team": "web"}
    assert pool["spec"].get("taints", []) == taints
    assert classes(found)["web"]["kubelet"] == {"maxPods": pods}


@pytest.mark.parametrize(
    ("text", "labels", "taints"),
    [
        ('[settings.kubernetes]\nnode-labels = {team = "web"}\nnode-taints.gpu = "yes:NoExecute"', {"team": "web"}, 1),
        ('[settings.kubernetes.node-taints]\na = ["1:NoSchedule", "2:NoExecute"]\nb = ["no taint"]', {}, 2),
        ("[settings.kubernetes.node-labels]\nteam = 7", {}, 0),
        ("[settings.kubernetes.node-labels]\nteam =", {}, 0),
    ],
    ids=["inline", "several of a key", "not text", "not TOML"],
)
def test_settings_of_bottlerocket_as_toml_has_them(text: str, labels: dict[str, str], taints: int) -> None:
    found = moved(scaling_group(), template(UserData=base64.b64encode(text.encode()).decode()))
    pool = pools_of(found)["web-shiplap"]["spec"]["template"]
    assert pool.get("metadata", {}).get("labels", {}) == labels
    assert len(pool["spec"].get("taints", [])) == taints


@pytest.mark.parametrize("user_data", ["", "%%%", base64.b64encode(b"\xff\xfe").decode()])
def test_user_data_that_is_no_text_says_nothing(user_data: str) -> None:
    found = moved(scaling_group(), template(UserData=user_data))
    assert "userData" not in classes(found)["web"]


def test_the_tags_that_describe_an_empty_group() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/"
    found = moved(
        scaling_group(
            tags={
                f"{prefix}label/team": "web",
                f"{prefix}label/node.kubernetes.io/instance-type": "m5.xlarge",
                f"{prefix}taint/dedicated": "web:NoSchedule",
                f"{prefix}autoscaling-options/scaledownunneededtime": "3m0s",
                f"{prefix}autoscaling-options/scaledownutilizationthreshold": "0.5",
            }
        ),
        boot("--node-labels=team=web --register-with-taints=dedicated=web:NoSchedule"),
    )
    pool = pools_of(found)["web-shiplap"]["spec"]
    assert pool["template"]["metadata"]["labels"] == {"team": "web"}
    assert pool["template"]["spec"]["taints"] == [{"key": "dedicated", "effect": "NoSchedule", "value": "web"}]
    assert pool["disruption"]["consolidateAfter"] == "3m0s"
    assert about(found, "label node.kubernetes.io/instance-type").match is MatchQuality.NONE
    assert about(found, "scaledownutilizationthreshold").match is MatchQuality.NONE
    assert refused(found) == []


def test_a_mixed_group() -> None:
    distribution = {
        "OnDemandBaseCapacity": 1,
        "OnDemandPercentageAboveBaseCapacity": 30,
        "SpotAllocationStrategy": "capacity-optimized",
        "SpotMaxPrice": "0.2",
    }
    overrides = ({"InstanceType": "m5.large", "WeightedCapacity": "2"}, {"InstanceType": "m5a.large"})
    found = moved(scaling_group(MixedInstancesPolicy=mixed(distribution, *overrides)), template())
    assert refused(found) == []
    assert requirements(found, "web-shiplap") == {
        ("node.kubernetes.io/instance-type", "In"): ["m5.large", "m5a.large"],
        ("karpenter.sh/capacity-type", "In"): ["spot", "on-demand"],
    }
    assert pools_of(found)["web-shiplap"]["metadata"]["annotations"] == {
        "shiplap.dev/min-on-demand": "30%",
        "shiplap.dev/allocation-strategy": "capacity-optimized",
    }
    for field in ("OnDemandBaseCapacity", "WeightedCapacity"):
        assert about(found, f"web: {field}").match is MatchQuality.NONE


def test_attributes_instead_of_types() -> None:
    wanted = {
        "VCpuCount": {"Min": 2, "Max": 8},
        "MemoryMiB": {"Min": 4096},
        "CpuManufacturers": ["amd", "amazon-web-services"],
        "ExcludedInstanceTypes": ["m5.large", "t*"],
        "BurstablePerformance": "excluded",
    }
    policy = mixed({"OnDemandPercentageAboveBaseCapacity": 0}, {"InstanceRequirements": wanted})
    found = moved(scaling_group(MixedInstancesPolicy=policy), template())
    assert refused(found) == []
    assert requirements(found, "web-shiplap") == {
        ("node.kubernetes.io/instance-type", "NotIn"): ["m5.large"],
        ("karpenter.k8s.aws/instance-cpu", "Gt"): ["1"],
        ("karpenter.k8s.aws/instance-cpu", "Lt"): ["9"],
        ("karpenter.k8s.aws/instance-memory", "Gt"): ["4095"],
        ("karpenter.k8s.aws/instance-cpu-manufacturer", "In"): ["amd", "aws"],
        ("karpenter.sh/capacity-type", "In"): ["spot"],
    }
    assert about(found, "ExcludedInstanceTypes").match is MatchQuality.NONE
    assert about(found, "burstable_performance").match is MatchQuality.NONE


def test_groups_that_boot_alike_share_a_node_class() -> None:
    found = moved(node_group("a"), node_group("b", instanceTypes=["m5.large"]))
    assert list(classes(found)) == ["a"]
    assert {pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] for pool in pools_of(found).values()} == {"a"}


def test_the_group_behind_a_managed_one_is_not_a_second() -> None:
    behind = scaling_group("eks-core-1", tags={"k8s.io/cluster-autoscaler/node-template/label/x": "y"})
    found = moved(node_group(resources={"autoScalingGroups": [{"name": "eks-core-1"}]}), behind)
    assert list(pools_of(found)) == ["core-shiplap"]
    assert pools_of(found)["core-shiplap"]["spec"]["template"]["metadata"]["labels"] == {"x": "y"}
    tagged = scaling_group("eks-core-2", tags={"eks:nodegroup-name": "core"})
    assert list(pools_of(moved(node_group(), tagged))) == ["core-shiplap"]


@pytest.mark.parametrize(("version", "kept"), [("$Default", "m5.xlarge"), ("$Latest", "m6i.large")])
def test_the_version_of_the_launch_template_that_is_meant(version: str, kept: str) -> None:
    newer = TEMPLATE | {
        "VersionNumber": 3,
        "DefaultVersion": False,
        "LaunchTemplateData": {"InstanceType": "m6i.large"},
    }
    group = scaling_group(LaunchTemplate={"LaunchTemplateId": "lt-1", "Version": version})
    found = moved(group, {"LaunchTemplateVersions": [TEMPLATE, newer]})
    assert requirements(found, "web-shiplap")["node.kubernetes.io/instance-type", "In"] == [kept]


def test_names_that_kubernetes_would_refuse() -> None:
    found = moved(scaling_group("Web_Spot.Nodes--" + "x" * 80), template())
    (name,) = pools_of(found)
    assert name.startswith("web-spot-nodes-xxx")
    assert len(name) <= 63
    assert refused(found) == []


def test_the_flags_of_the_autoscaler() -> None:
    flags = (
        "--scale-down-unneeded-time=5m",
        "--max-node-provision-time",
        "10m",
        "--max-empty-bulk-delete=7",
        "--max-scale-down-parallelism=3",
        "--expander=least-waste,my-own",
        "--scale-down-utilization-threshold=0.6",
        "--cordon-node-before-terminating",
        "--nodes=1:6:web",
        "--v=4",
        "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/other",
        "--strange",
    )
    found = moved(scaling_group(), template(), deployment(*flags))
    spec = pools_of(found)["web-shiplap"]["spec"]
    assert spec["disruption"] == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "5m",
        "budgets": [{"nodes": "3"}],
    }
    assert spec["limits"] == {"nodes": "6"}
    assert found.join_timeout_s == 600
    assert about(found, "--expander=my-own").match is MatchQuality.NONE
    assert about(found, "--scale-down-utilization-threshold").match is MatchQuality.NONE
    assert about(found, "--cordon-node-before-terminating").match is MatchQuality.EXACT
    assert "not known" in about(found, "--strange").note
    assert not any(finding.field == "--v" for finding in found.findings)


def test_scale_down_switched_off_keeps_every_node() -> None:
    found = moved(scaling_group(), template(), deployment("--scale-down-enabled=false"))
    assert pools_of(found)["web-shiplap"]["spec"]["disruption"]["budgets"] == [{"nodes": "0"}]


@pytest.mark.parametrize(
    "flag",
    [
        "--nodes=1:x:web",
        "--max-node-provision-time=soon",
        "--max-nodes-total=many",
        "--node-group-auto-discovery=label:a=b",
    ],
)
def test_a_flag_that_cannot_be_read_is_told(flag: str) -> None:
    found = moved(scaling_group(), template(), deployment(flag))
    assert "cannot be read" in about(found, flag.partition("=")[0]).note


def test_a_join_timeout_is_kept_within_what_shiplap_takes() -> None:
    found = moved(scaling_group(), template(), deployment("--max-node-provision-time=2h"))
    assert found.join_timeout_s == 3600
    assert about(found, "max-node-provision-time").match is MatchQuality.APPROXIMATE


def test_priorities_become_weights_in_their_order() -> None:
    given = (deployment("--expander=priority"), priorities("10:\n  - .*\n50:\n  - ^spot-\n100:\n  - ^gpu-\n"))
    groups = [node_group(name) for name in ("spot-a", "gpu-a", "other")]
    found = moved(*groups, *given)
    assert {name: pool["spec"].get("weight") for name, pool in pools_of(found).items()} == {
        "gpu-a-shiplap": 99,
        "spot-a-shiplap": 66,
        "other-shiplap": 33,
    }
    assert refused(found) == []
    without = moved(*groups, deployment("--expander=random"), given[1])
    assert all("weight" not in pool["spec"] for pool in pools_of(without).values())


@pytest.mark.parametrize("text", ["high:\n  - .*", "10:\n  - '['", "10: 5"])
def test_priorities_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a number with a list"):
        moved(node_group(), deployment("--expander=priority"), priorities(text))


def test_without_the_deployment_the_report_says_so() -> None:
    assert "was not given" in about(moved(node_group()), "cluster-autoscaler: Deployment").note


def test_an_answer_with_a_field_of_the_wrong_type() -> None:
    with pytest.raises(InvalidInput, match="AutoScalingGroups"):
        moved(scaling_group(MaxSize="many"))


def test_nothing_to_migrate() -> None:
    with pytest.raises(InvalidInput, match="holds neither"):
        moved("apiVersion: v1\nkind: Pod\nmetadata: {name: a}")


def test_both_autoscalers_at_once() -> None:
    karpenter = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {template: {spec: {}}}"
    with pytest.raises(InvalidInput, match="one after the other"):
        moved(karpenter, node_group())


# Nothing is dropped, and nothing is widened, without a word


@pytest.mark.parametrize(("above_base", "written"), [(0, "0.2"), (25, None), (100, None)])
def test_the_price_of_spot_bounds_spot_alone(above_base: int, written: str | None) -> None:
    distribution = {"OnDemandPercentageAboveBaseCapacity": above_base, "SpotMaxPrice": "0.2"}
    found = moved(scaling_group(MixedInstancesPolicy=mixed(distribution, {"InstanceType": "m5.large"})), template())
    notes = pools_of(found)["web-shiplap"]["metadata"].get("annotations", {})
    assert notes.get("shiplap.dev/max-node-price") == written
    if above_base == 25:
        assert about(found, "SpotMaxPrice").match is MatchQuality.NONE


def test_the_price_of_spot_may_stand_in_the_launch_template() -> None:
    options = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.3"}}
    found = moved(scaling_group(), template(InstanceMarketOptions=options))
    assert pools_of(found)["web-shiplap"]["metadata"]["annotations"] == {"shiplap.dev/max-node-price": "0.3"}


def test_devices_that_tags_promise_become_an_overlay_of_their_own_pool() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template/resources/"
    amounts = {"example.com/fuse": "10", "cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1", "example.com/odd": "many"}
    tagged = scaling_group(tags={prefix + name: amount for name, amount in amounts.items()})
    other = scaling_group("api", tags={prefix + "example.com/kvm": "1"})
    found = moved(tagged, other, template())
    overlays = {item["metadata"]["name"]: item["spec"] for item in found.manifests if item["kind"] == "NodeOverlay"}
    assert overlays == {
        f"{name}-shiplap": {
            "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": [f"{name}-shiplap"]}],
            "capacity": capacity,
        }
        for name, capacity in (("web", {"example.com/fuse": "10"}), ("api", {"example.com/kvm": "1"}))
    }
    assert refused(found) == []
    assert about(found, "resources/example.com/odd").match is MatchQuality.NONE
    assert about(found, "resources/cpu").match is MatchQuality.APPROXIMATE


@pytest.mark.parametrize(
    ("sources", "field"),
    [
        ([scaling_group(), template(CpuOptions={"CoreCount": 2})], "launch template CpuOptions"),
        ([scaling_group(), template(Placement={"Tenancy": "dedicated"})], "launch template Placement"),
        ([scaling_group(), template(KeyName="ops")], "launch template KeyName ops"),
        (
            [scaling_group(), template(BlockDeviceMappings=[{"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"}])],
            "launch template device /dev/sdb ephemeral0",
        ),
        (
            [scaling_group(), template(InstanceType="", InstanceRequirements={"AcceleratorCount": {"Min": 1}})],
            "InstanceRequirements.AcceleratorCount",
        ),
        (
            [scaling_group(), template(InstanceType="", InstanceRequirements={"CpuManufacturers": ["apple"]})],
            "CpuManufacturers",
        ),
        (
            [
                scaling_group(
                    MixedInstancesPolicy=mixed(
                        {}, *({"InstanceRequirements": {"VCpuCount": {"Min": number}}} for number in (2, 8))
                    )
                ),
                template(),
            ],
            "Overrides",
        ),
        (
            [
                scaling_group(
                    MixedInstancesPolicy=mixed(
                        {}, {"InstanceType": "m5.large", "LaunchTemplateSpecification": {"LaunchTemplateName": "arm"}}
                    )
                ),
                template(),
            ],
            "Overrides.LaunchTemplateSpecification",
        ),
        (
            [scaling_group(tags={"k8s.io/cluster-autoscaler/node-template/taint/a": "no taint"}), template()],
            "tag k8s.io/cluster-autoscaler/node-template/taint/a",
        ),
        (
            [scaling_group(tags={"k8s.io/cluster-autoscaler/node-template/other/a": "b"}), template()],
            "tag k8s.io/cluster-autoscaler/node-template/other/a",
        ),
        (
            [
                scaling_group(
                    tags={"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "soon"}
                ),
                template(),
            ],
            "autoscaling-options/scaledownunneededtime",
        ),
    ],
)
def test_what_is_not_carried_over_is_named(sources: list[dict[str, Any]], field: str) -> None:
    found = moved(*sources)
    assert [item.match for item in found.findings if item.field == field] == [MatchQuality.NONE]


def test_tags_and_public_addresses_of_instances_are_kept() -> None:
    tags = [
        {"Key": "team", "Value": "ml", "PropagateAtLaunch": True},
        {"Key": "of-the-group", "Value": "x", "PropagateAtLaunch": False},
        {"Key": "kubernetes.io/cluster/prod", "Value": "owned", "PropagateAtLaunch": True},
    ]
    interfaces = [{"AssociatePublicIpAddress": True, "Groups": ["sg-12345678"]}]
    found = moved(scaling_group(Tags=tags), template(NetworkInterfaces=interfaces))
    assert classes(found)["web"]["tags"] == {"team": "ml"}
    assert classes(found)["web"]["associatePublicIPAddress"] is True
    assert refused(found) == []


def test_groups_whose_names_become_equal_keep_pools_and_classes_of_their_own() -> None:
    long = "x" * 60
    groups = [scaling_group(name) for name in ("web_a", "web.a", f"{long}1", f"{long}2")]
    found = moved(*groups, template(), node_group("web-a", instanceTypes=["c5.large"]))
    names = [(item["kind"], item["metadata"]["name"]) for item in found.manifests]
    assert len(names) == len(set(names))
    assert len(pools_of(found)) == 5
    assert refused(found) == []
