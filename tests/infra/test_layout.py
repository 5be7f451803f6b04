"""The layout of stacks: what must never be renamed, and what one cluster more or less must not touch."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap.flows.claim_events import DISRUPTION_DUE
from shiplap_cdk import quotas
from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build
from tests.aws_rules import cloud_assembly
from tests.infra.synthesised import INSTALL
from tests.permissions.authorizations import ACCOUNT, arn, pass_role
from tests.permissions.evaluator import allowed, of
from tests.permissions.roles import Roles
from tests.permissions.story import REGION

if TYPE_CHECKING:
    from aws_cdk.assertions import Template

Raw = dict[str, Any]

NAMED = {
    "ShiplapStorageStateA37890B1": ("AWS::DynamoDB::GlobalTable", ""),
    "ShiplapStorageCapacity58F9D960": ("AWS::DynamoDB::GlobalTable", ""),
    "ShiplapStorageBucketF4F1456A": ("AWS::S3::Bucket", ""),
    "ShiplapEventsBusEC695099": ("AWS::Events::EventBus", "shiplap"),
    "ShiplapScheduleGroupD7FE8280": ("AWS::Scheduler::ScheduleGroup", "shiplap"),
}
"""Stateful resources by logical id: a change would make CloudFormation replace them. Never edit this list."""

QUEUES = {
    "ShiplapEventsInterruptionDeadLettersA421C4D5": "shiplap-interruption-dead-letters",
    "ShiplapEventsInterruptionF719A424": "shiplap-interruption",
    "ShiplapNetworkEventsProvisioningDeadLetters452ADC37": "shiplap-provisioning-dead-letters",
    "ShiplapNetworkEventsProvisioning2ACED9B2": "shiplap-provisioning",
    "ShiplapNetworkEventsLifecycleDeadLetters3A32439E": "shiplap-lifecycle-dead-letters",
    "ShiplapNetworkEventsLifecycle507ACDE4": "shiplap-lifecycle",
}

OF_CLUSTER = {
    "Nodes66C30434": "AWS::IAM::Role",
    "NodesEntry": "AWS::EKS::AccessEntry",
    "Profileshiplapnodeproduction0f92670c": "AWS::IAM::InstanceProfile",
    "ProfileNameshiplapnodeproduction0f92670c": "AWS::SSM::Parameter",
    "Entryschedule": "AWS::EKS::AccessEntry",
    "Entrylifecycle": "AWS::EKS::AccessEntry",
    "Entrydisrupt": "AWS::EKS::AccessEntry",
    "Entrywatch": "AWS::EKS::AccessEntry",
    "AuditLog": "AWS::Logs::SubscriptionFilter",
}


def test_logical_ids_and_names_of_what_holds_state_are_as_they_were(template: Template) -> None:
    found = template.to_json()["Resources"]
    kinds = {kind for kind, _ in NAMED.values()}
    named = {
        id_: (item["Type"], item["Properties"].get("Name", "")) for id_, item in found.items() if item["Type"] in kinds
    }

    assert named == NAMED
    assert {
        id_: item["Properties"]["QueueName"] for id_, item in found.items() if item["Type"] == "AWS::SQS::Queue"
    } == QUEUES


def test_logical_ids_and_names_of_access_to_a_cluster_are_as_they_were(app: Any) -> None:
    (path,) = Path(app.outdir).glob("ShiplapClusterproduction*.nested.template.json")
    nested = json.loads(path.read_text())["Resources"]

    assert {id_: item["Type"] for id_, item in nested.items()} == OF_CLUSTER
    assert not [item for item in nested.values() if {"RoleName", "InstanceProfileName"} & item["Properties"].keys()], (
        "what is kept for nodes that still run must not stand in the way of its successor"
    )


class Written:
    """The templates of an install as files: the parent's body, and each nested one's bytes by its resource there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parent: Raw = json.loads((folder / "Shiplap.template.json").read_text())
        self.nested = {path.name: path.read_bytes() for path in folder.glob("*.nested.template.json")}

    def bodies(self) -> dict[str, Raw]:
        nested = {name.partition(".")[0]: json.loads(text) for name, text in self.nested.items()}
        return {"Shiplap": self.parent, **nested}


def install(folder: Path, names: Sequence[str], network: Callable[[str], str]) -> Written:
    """Clusters of these names with a node role, zonal shifts and audit logs each, in networks by their name."""
    text = (INSTALL.parent / "manifests" / "production" / "nodes.yaml").read_text()
    clusters = []
    for number, name in enumerate(names):
        manifests = folder / f"{number}.yaml"
        manifests.write_text(text.replace("shiplap-node-production", f"shiplap-node-{name}"))
        digits = f"{sum(network(name).encode()):08d}"
        vpc = {"subnets": [f"subnet-{digits}"], "securityGroups": [f"sg-{digits}"], "name": network(name)}
        clusters.append({"name": name, "manifests": manifests.name, "vpc": vpc, "audit": True, "zonalShift": True})
    (folder / "shiplap.yaml").write_text(json.dumps({"region": REGION, "clusters": clusters}))
    folder /= "cdk.out"
    build(read(folder.parent / "shiplap.yaml"), local=True, outdir=str(folder)).synth()
    return Written(folder)


def test_one_cluster_more_or_less_changes_nothing_of_any_other(tmp_path: Path) -> None:
    names = ["blue-1", "blue-2", "red-1", "red-2"]
    found = {}
    for title, chosen in (("all", names), ("one more", [*names, "blue-0"]), ("without the first", names[1:])):
        folder = tmp_path / title
        folder.mkdir()
        found[title] = install(folder, chosen, lambda name: name.partition("-")[0].removeprefix("blue"))

    before = found["all"]
    for after in (found["one more"], found["without the first"]):
        kept = {name for name in before.nested if "Cluster" in name} & after.nested.keys()
        assert len(kept) >= 3
        assert {name for name in kept if before.nested[name] != after.nested[name]} == set()
        ids = {id_ for id_ in before.parent["Resources"] if "CurrentVersion" not in id_}
        later = {id_ for id_ in after.parent["Resources"] if "CurrentVersion" not in id_}
        assert {id_ for id_ in ids ^ later if "Cluster" not in id_} == set()
        assert len(ids ^ later) == 1


HUNDRED = [f"{f'cluster-{number:03d}':-<99}z" for number in range(100)]
NETWORKS = ("", "blue", "green", "red", "violet")


def network_of(name: str) -> str:
    return NETWORKS[HUNDRED.index(name) % len(NETWORKS)]


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A hundred clusters with names of a hundred characters, in five VPCs."""
    return install(tmp_path_factory.mktemp("hundred"), HUNDRED, network_of)


@pytest.fixture(scope="module")
def roles(hundred: Written) -> Roles:
    return Roles(cloud_assembly.templates(hundred.folder))


def test_a_hundred_clusters_exceed_no_quota(hundred: Written) -> None:
    assert list(quotas.exceeded(hundred.bodies())) == []
    assert len(hundred.nested) == 100 + 4


@pytest.mark.parametrize("network", NETWORKS, ids=["without a name", *NETWORKS[1:]])
def test_functions_enter_the_clusters_of_their_network_and_no_others(roles: Roles, network: str) -> None:
    for function in ("schedule", "lifecycle", "disrupt", "watch"):
        statements = roles.statements(f"{function}-{network}" if network else function)
        entered = {
            name
            for name in HUNDRED
            if allowed(statements, of("eks:DescribeCluster", arn("eks", REGION, f"cluster/{name}"), {}))
        }
        assert entered == {name for name in HUNDRED if network_of(name) == network}


def test_zonal_shifts_are_heeded_in_all_of_a_hundred_clusters(roles: Roles) -> None:
    for function in ("schedule", "disrupt"):
        heeded = [
            name
            for name in HUNDRED
            for network in NETWORKS
            if allowed(
                roles.statements(f"{function}-{network}" if network else function),
                of(
                    "arc-zonal-shift:GetManagedResource",
                    "*",
                    {"arc-zonal-shift:ResourceIdentifier": arn("eks", REGION, f"cluster/{name}")},
                ),
            )
        ]
        assert heeded == HUNDRED


def test_each_of_a_hundred_clusters_has_a_node_role_that_launches_may_pass(roles: Roles) -> None:
    of_profiles = roles.role_of_profile()

    assert len(set(of_profiles.values())) == len(of_profiles) == 100
    assert all(len(role.partition(":role")[2].rpartition("/")[0]) < 512 for role in of_profiles.values())
    assert len(roles.parameters()) == 100
    assert all(len(name) <= 1011 - len(f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter") for name in roles.parameters())
    for network in NETWORKS:
        statements = roles.statements(f"schedule-{network}" if network else "schedule")
        assert [role for role in of_profiles.values() if not allowed(statements, pass_role(role))] == []
        assert not allowed(statements, pass_role(f"arn:aws:iam::{ACCOUNT}:role/admin"))


def test_events_of_each_of_a_hundred_clusters_reach_the_queues_of_its_network(hundred: Written) -> None:
    rules = [
        item.properties
        for template in cloud_assembly.templates(hundred.folder)
        for item in template.resources()
        if item.type == "AWS::Events::Rule" and "cluster" in item.properties["EventPattern"].get("detail", {})
    ]
    for name in HUNDRED:
        suffix = f"-{network_of(name)}" if network_of(name) else ""
        reached = {
            (detail_type, target["Arn"].rpartition(":")[2])
            for rule in rules
            if name in rule["EventPattern"]["detail"]["cluster"]
            for detail_type in rule["EventPattern"]["detail-type"]
            for target in rule["Targets"]
        }
        assert reached == {
            ("PodPending", f"shiplap-provisioning{suffix}"),
            ("NodeJoined", f"shiplap-lifecycle{suffix}"),
            ("NodeReady", f"shiplap-lifecycle{suffix}"),
        }


def test_each_of_a_hundred_clusters_is_watched_once(hundred: Written) -> None:
    inputs = [
        json.loads(item.properties["Target"]["Input"])
        for template in cloud_assembly.templates(hundred.folder)
        for item in template.resources()
        if item.type == "AWS::Scheduler::Schedule"
    ]

    assert sorted(name for each in inputs for name in each.get("clusters", ())) == HUNDRED
    assert inputs.count({"kind": "sweep"}) == len(NETWORKS)


def test_interrupt_finds_the_lifecycle_queue_of_each_network(roles: Roles) -> None:
    urls = json.loads(roles.environment("interrupt")["SHIPLAP_LIFECYCLE_QUEUE_URLS"])

    assert {name: url.rpartition("/")[2] for name, url in urls.items()} == {
        name: f"shiplap-lifecycle-{name}" if name else "shiplap-lifecycle" for name in NETWORKS
    }
    statements = roles.statements("interrupt")
    for url in urls.values():
        queue = arn("sqs", REGION, url.rpartition("/")[2])
        assert allowed(statements, of("sqs:SendMessage", queue, {}))
    assert roles.environment("schedule-blue")["SHIPLAP_NETWORK"] == "blue"
    assert "SHIPLAP_NETWORK" not in roles.environment("schedule")


def test_disruption_that_is_handed_on_starts_the_function_of_the_clusters_network(hundred: Written) -> None:
    rules = {
        item.properties["EventPattern"]["detail"]["network"][0]: (template, item)
        for template in cloud_assembly.templates(hundred.folder)
        for item in template.resources()
        if item.type == "AWS::Events::Rule" and item.properties["EventPattern"]["detail-type"] == [DISRUPTION_DUE]
    }

    assert set(rules) == set(NETWORKS)
    for network, (template, rule) in rules.items():
        (target,) = rule.properties["Targets"]
        function = f"shiplap-disrupt-{network}" if network else "shiplap-disrupt"
        assert target["Arn"].endswith(f":function:{function}:live")
        assert rule.properties["EventBusName"].rpartition("/")[2] == "shiplap"
        allows = [
            item.properties
            for item in template.resources()
            if item.type == "AWS::Lambda::Permission"
            and item.properties["Principal"] == "events.amazonaws.com"
            and item.properties["FunctionName"] == target["Arn"]
        ]
        assert [item["Action"] for item in allows] == ["lambda:InvokeFunction"]
        assert ":rule/" in allows[0]["SourceArn"]


def test_roles_whose_names_differ_by_hyphens_or_paths_have_their_instance_profiles(tmp_path: Path) -> None:
    text = (INSTALL.parent / "manifests" / "production" / "nodes.yaml").read_text()
    written = list(yaml.safe_load_all(text))
    (first, *_) = [item for item in written if item["kind"] == "EC2NodeClass"]
    for number, role in enumerate(("a-b", "ab", "path/ab")):
        again = copy.deepcopy(first)
        again["metadata"]["name"], again["spec"]["role"] = f"more-{number}", role
        written.append(again)
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(written))
    clusters = [{"name": "production", "manifests": "nodes.yaml"}]
    (tmp_path / "shiplap.yaml").write_text(json.dumps({"region": REGION, "clusters": clusters}))
    build(read(tmp_path / "shiplap.yaml"), local=True, outdir=str(tmp_path / "cdk.out")).synth()

    (path,) = (tmp_path / "cdk.out").glob("ShiplapClusterproduction*.nested.template.json")
    resources = json.loads(path.read_text())["Resources"]
    paths = [item["Properties"]["Path"] for item in resources.values() if item["Type"] == "AWS::IAM::InstanceProfile"]
    assert {f"/shiplap/{REGION}/shiplap/production/{role}/" for role in ("a-b", "ab")} <= set(paths)
    assert len(paths) == len(set(paths)) == 3
    names = [item["Properties"]["Name"] for item in resources.values() if item["Type"] == "AWS::SSM::Parameter"]
    assert len(names) == len(set(names)) == 3
