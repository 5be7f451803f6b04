"""The identity of nodes on the emulated account: it outlives deployments while instances carry it, and goes after them.

The stack is deployed by the CDK as it is; the functions launch the nodes. Only days are not waited for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import msgspec
import pytest

from shiplap.aws.bucket import BucketKeptIdentities
from shiplap.aws.iam_identities import AwsNodeIdentities
from shiplap.errors import ShiplapError
from shiplap.flows.catalog.identity_sweep import sweep_identities
from shiplap.node_identities import GRACE_S, KeptIdentities
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.emulated_aws import cdk
from shiplap_lab.emulated_aws.emulator import AwsEmulator, DeployedStack
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from tests.builders.pods import pod_object

pytestmark = pytest.mark.thorough

try:
    cdk.executable()
except ShiplapError as missing:
    pytest.skip(f"the stack cannot be deployed: {missing}", allow_module_level=True)

REGION = "us-east-1"
VERSION = "1.34"
PATH = f"/shiplap/{REGION}/shiplap/"
NODES = 50
LONGEST_WAIT_S = 120
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})

MANIFESTS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: default}}
spec:
  amiSelectorTerms: [{{alias: al2023@latest}}]
  role: {role}
  subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}]
  securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: general}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      requirements:
        - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
        - {{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}}
"""


class Clock:
    def now(self) -> float:
        return time.time()


class Identity(NamedTuple):
    """The identity of a cluster's node: names of profile and role, and the type of the role's access entry."""

    profile: str
    role: str
    entry: str


class Account:
    """The emulated account, whose stack is deployed with the roles that a test names."""

    def __init__(self, folder: Path, aws: AwsEmulator, ec2: Ec2Emulator, cluster: ApiServer, endpoint: str) -> None:
        self.folder, self.aws, self.ec2, self.cluster, self.endpoint = folder, aws, ec2, cluster, endpoint
        self.iam, self.eks, self.ssm = aws.client("iam"), aws.client("eks"), aws.client("ssm", ec2.url)
        self.network = boto3.client(
            "ec2", endpoint_url=ec2.url, region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local"
        )

    def deploy(self, **roles: str) -> DeployedStack:
        """Deploy for clusters by their names, whose nodes have these roles."""
        clusters = []
        for name, role in roles.items():
            (self.folder / f"{name}.yaml").write_text(MANIFESTS.format(role=role))
            cluster = {"name": name, "manifests": f"{name}.yaml", "access": "entry", "endpoint": self.endpoint}
            cluster |= {"token": "local", "certificateAuthority": "Q0E=", "kubernetesVersion": VERSION}
            clusters.append(cluster | {"serviceCIDR": "10.100.0.0/16", "unprovenPodNodes": 0})
        settings = self.folder / "shiplap.yaml"
        settings.write_bytes(msgspec.json.encode({"region": REGION, "dashboard": False, "clusters": clusters}))
        return self.aws.deploy(settings, dict.fromkeys(("EC2", "SSM", "PRICING"), self.ec2.url))

    def identities(self) -> set[Identity]:
        """All of the install that exist in IAM, without a profile the role alone."""
        profiles = self.iam.list_instance_profiles(PathPrefix=PATH)["InstanceProfiles"]
        found = {
            (
                item["InstanceProfileName"],
                item["Roles"][0]["RoleName"],
                item["Path"].removeprefix(PATH).partition("/")[0],
            )
            for item in profiles
        }
        roles = {item["RoleName"]: item["Path"].removeprefix(PATH).strip("/") for item in self._roles()}
        found |= {("", name, cluster) for name, cluster in roles.items() if name not in {role for _, role, _ in found}}
        return {Identity(profile, role, self._entry(cluster, role)) for profile, role, cluster in found}

    def current(self, cluster: str) -> Identity:
        """That of nodes that would be launched now."""
        found = self.ssm.get_parameters_by_path(Path=f"/shiplap/shiplap/{cluster}", Recursive=True)["Parameters"]
        (value,) = [item["Value"] for item in found]
        (identity,) = [item for item in self.identities() if item.profile == value]
        return identity

    def run_nodes(self, deployed: DeployedStack, count: int) -> list[str]:
        """Have the functions launch nodes for pods of which none fits beside another; ids of the instances."""
        for number in range(count):
            self.cluster.create("pods", pod_object(f"pod-{number}", "1200m", "1Gi", waits=True), "default")
        sweep = json.dumps({"kind": "sweep", "cluster": "demo"})
        self.aws.client("sqs").send_message(QueueUrl=deployed.provisioning_queue_url, MessageBody=sweep)
        deadline = time.monotonic() + LONGEST_WAIT_S
        while len(found := self.ec2.control.instances()) < count and time.monotonic() < deadline:
            pass
        assert len(found) == count, (self.aws.state / "ministack.log").read_text()[-4000:]
        return [item.id for item in found]

    def sweep(self, deployed: DeployedStack, days: float) -> KeptIdentities:
        """Sweep as the catalog function will after some days."""
        store = BucketKeptIdentities(self.aws.client("s3"), deployed.bucket, REGION)
        found = AwsNodeIdentities(
            "shiplap", REGION, iam=self.iam, ec2=self.network, ssm=lambda: self.ssm, eks=lambda: self.eks
        )
        clock = FakeClock(time.time() + days * GRACE_S)
        sweep_identities(found, store, clock, FakeMeter(), until=clock.now() + 1)
        return store.load()

    def invoke(self, deployed: DeployedStack, function: str) -> None:
        answer = self.aws.client("lambda").invoke(FunctionName=deployed.functions[function], Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()

    def _roles(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.iam.list_roles(PathPrefix=PATH)["Roles"]
        return found

    def _entry(self, cluster: str, role: str) -> str:
        arns = {item["RoleName"]: item["Arn"] for item in self._roles()}
        if cluster not in self.eks.list_clusters()["clusters"] or role not in arns:
            return ""
        if arns[role] not in self.eks.list_access_entries(clusterName=cluster)["accessEntries"]:
            return ""
        described = self.eks.describe_access_entry(clusterName=cluster, principalArn=arns[role])
        return str(described["accessEntry"]["type"])

    def create_clusters(self, *names: str) -> None:
        for name in names:
            role = "arn:aws:iam::123456789012:role/eks"
            self.eks.create_cluster(name=name, roleArn=role, resourcesVpcConfig={"subnetIds": []})


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    cluster = ApiServer(Clock())
    with ExitStack() as running:
        api = running.enter_context(KubeHttpServer(cluster))
        ec2 = running.enter_context(Ec2Emulator(region=REGION, prices=Prices({"m5.large": 0.096})))
        aws = running.enter_context(AwsEmulator(REGION, folder=tmp_path / "state"))
        seed.register_images(ec2.control, seed.release_images("al2023@latest", VERSION))
        made = Account(tmp_path, aws, ec2, cluster, api.endpoint)
        running.callback(made.network.close)
        seed.create_network(made.network, "demo", (f"{REGION}a", f"{REGION}b"))
        yield made


def test_identity_outlives_changes_of_roles_and_clusters_until_the_last_node_is_gone(account: Account) -> None:
    account.create_clusters("demo", "extra")
    account.iam.create_role(RoleName="others", AssumeRolePolicyDocument=TRUST)

    deployed = account.deploy(demo="shiplap-node-demo", extra="shiplap-node-extra")
    first, extra = account.current("demo"), account.current("extra")
    nodes = account.run_nodes(deployed, NODES)
    assert {item.instance_profile for item in account.ec2.control.instances()} == {first.profile}
    assert (first.entry, extra.entry) == ("EC2_LINUX", "EC2_LINUX")

    # The role changes under fifty nodes, and a cluster is removed.
    deployed = account.deploy(demo="others")
    assert {first, extra} <= account.identities()
    second = account.current("demo")
    assert (second.role, second.profile != first.profile) == ("others", True)
    account.invoke(deployed, "catalog")
    kept = {item.name: (item.cluster, item.instances) for item in account.sweep(deployed, 0).profiles}
    assert kept == {first.profile: ("demo", NODES), extra.profile: ("extra", 0)}
    account.network.terminate_instances(InstanceIds=nodes[1:])
    account.sweep(deployed, 2)
    assert account.identities() == {first, second, Identity("", extra.role, "EC2_LINUX")}, "extra's had no node"
    account.sweep(deployed, 2)
    assert account.identities() == {first, second}, "one instance carries the first"

    # Back to the first role, and the cluster again: what is kept is in nobody's way.
    deployed = account.deploy(demo="shiplap-node-demo", extra="shiplap-node-extra")
    third, again = account.current("demo"), account.current("extra")
    assert third.role not in {first.role, second.role}
    assert account.identities() == {first, second, third, again}
    assert (third.entry, again.entry) == ("EC2_LINUX", "EC2_LINUX")

    # The last node of the first role goes, and with it all that it carried; the user's own role stays.
    account.network.terminate_instances(InstanceIds=nodes[:1])
    account.sweep(deployed, 2)  # the profile of `others` is noted
    account.sweep(deployed, 2)
    assert account.identities() == {second, third, again}
    account.sweep(deployed, 4)
    assert account.identities() == {third, again}
    assert account.iam.get_role(RoleName="others")["Role"]["RoleName"] == "others"

    # The stack is destroyed: nodes that run on keep what they carry.
    account.aws.destroy()
    assert account.identities() == {third, again}


def test_a_first_deployment_that_fails_leaves_nothing_and_the_next_one_works(account: Account) -> None:
    with pytest.raises(ShiplapError):
        account.deploy(demo="shiplap-node-demo")  # there is no such cluster: its access entries cannot be made
    assert account.identities() == set()
    assert account.aws.client("dynamodb").list_tables()["TableNames"] == []
    assert [item for item in account.aws.client("s3").list_buckets()["Buckets"] if "cdk" not in item["Name"]] == []
    assert account.aws.client("lambda").list_layers()["Layers"] == []

    account.create_clusters("demo")
    account.deploy(demo="shiplap-node-demo")
    assert account.identities() == {account.current("demo")}
    assert account.current("demo").entry == "EC2_LINUX"
