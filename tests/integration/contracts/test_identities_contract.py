"""The contracts of NodeIdentities and KeptIdentityStore, held by the fakes and by the adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from botocore.exceptions import ClientError
from moto.iam.models import iam_backends

from shiplap.aws.bucket import IDENTITIES_PREFIX, BucketKeptIdentities
from shiplap.aws.iam_identities import AwsNodeIdentities
from shiplap.aws.instance_profiles import identity_path, profile_parameter
from shiplap.errors import AwsError, StoreError
from shiplap.node_identities import InstanceProfile, KeptIdentities, KeptProfile, KeptRole, OwnNodeRole
from shiplap.ports import KeptIdentityStore, NodeIdentities
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from tests.integration.contracts.emulated_ec2 import REGION, Region, emulated_region

INSTALL = "shiplap"
_ALLOW = {"Effect": "Allow", "Action": "ec2:DescribeTags", "Resource": "*"}
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [_ALLOW]})


class Ground(Protocol):
    """Makes the roles, profiles and instances of a test, whoever plays IAM."""

    port: NodeIdentities

    def role(self, name: str, cluster: str = "demo") -> None: ...
    def profile(self, name: str, role: str, cluster: str = "demo") -> None: ...
    def use(self, profile: str, role: str, cluster: str = "demo") -> None: ...
    def run(self, profile: str) -> str: ...
    def hold_elsewhere(self, profile: str, role: str) -> None: ...
    def entries(self) -> set[str]: ...


class FakeGround:
    def __init__(self) -> None:
        self.port = self.fake = FakeNodeIdentities()

    def role(self, name: str, cluster: str = "demo") -> None:
        self.fake.roles[name] = OwnNodeRole(name, f"arn:{name}", cluster, 0.0)
        self.fake.entries.add(name)

    def profile(self, name: str, role: str, cluster: str = "demo") -> None:
        self.fake.profiles[name] = InstanceProfile(name, f"arn:{name}", cluster, role, (role,))

    def use(self, profile: str, role: str, cluster: str = "demo") -> None:
        self.fake.current.add(profile)

    def run(self, profile: str) -> str:
        name = f"i-{sum(map(len, self.fake.instances.values())):02}"
        self.fake.instances.setdefault(profile, set()).add(name)
        return name

    def hold_elsewhere(self, profile: str, role: str) -> None:
        self.fake.foreign.setdefault(role, set()).add(profile)

    def entries(self) -> set[str]:
        return {name.removeprefix("arn:") for name in self.fake.entries} & self.fake.roles.keys()


class Eks:
    """Access entries by cluster and principal; moto knows none."""

    def __init__(self) -> None:
        self.entries: set[tuple[str, str]] = set()
        self.refusal: ClientError | None = None

    def delete_access_entry(self, *, clusterName: str, principalArn: str) -> None:  # noqa: N803 - EKS's names
        if self.refusal is not None:
            raise self.refusal
        if (clusterName, principalArn) not in self.entries:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "none"}}, "DeleteAccessEntry")
        self.entries.remove((clusterName, principalArn))


class AwsGround:
    def __init__(self, region: Region) -> None:
        self.region, self.eks = region, Eks()
        self.iam = region.client("iam")
        self.port = self.of(INSTALL)

    def of(self, install: str) -> AwsNodeIdentities:
        clients = self.region.client
        return AwsNodeIdentities(
            install,
            REGION,
            iam=self.iam,
            ec2=clients("ec2"),
            ssm=lambda: clients("ssm"),
            eks=lambda: self.eks,  # type: ignore[arg-type, return-value]
        )

    def role(self, name: str, cluster: str = "demo", install: str = INSTALL) -> None:
        path = identity_path(install, REGION, cluster)
        made = self.iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=TRUST)["Role"]
        policy = self.iam.create_policy(PolicyName=f"of-{name}", PolicyDocument=TRUST)["Policy"]["Arn"]
        self.iam.attach_role_policy(RoleName=name, PolicyArn=policy)
        self.iam.put_role_policy(RoleName=name, PolicyName="inline", PolicyDocument=TRUST)
        self.eks.entries.add((cluster, made["Arn"]))

    def profile(self, name: str, role: str, cluster: str = "demo", install: str = INSTALL) -> None:
        self._profile(name, role, identity_path(install, REGION, cluster, role))

    def use(self, profile: str, role: str, cluster: str = "demo", install: str = INSTALL) -> None:
        name = profile_parameter(install, cluster, role)
        self.region.client("ssm").put_parameter(Name=name, Value=profile, Type="String", Overwrite=True)

    def run(self, profile: str) -> str:
        ec2 = self.region.client("ec2")
        image = ec2.register_image(Name=f"image-{profile}", Architecture="x86_64")["ImageId"]
        named = {"ImageId": image, "InstanceType": "m5.large", "IamInstanceProfile": {"Name": profile}}
        made = ec2.run_instances(**named, MinCount=1, MaxCount=1)["Instances"][0]
        return str(made["InstanceId"])

    def hold_elsewhere(self, profile: str, role: str) -> None:
        self._profile(profile, role, "/")

    def entries(self) -> set[str]:
        return {principal.rpartition("/")[2] for _, principal in self.eks.entries}

    def _profile(self, name: str, role: str, path: str) -> None:
        self.iam.create_instance_profile(InstanceProfileName=name, Path=path)
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with emulated_region() as running:
        yield running


def emptied(region: Region) -> Region:
    region.empty()
    for account in iam_backends.values():
        account.reset()
    return region


@pytest.fixture(params=["fake", "aws"])
def ground(request: pytest.FixtureRequest) -> Ground:
    return FakeGround() if request.param == "fake" else AwsGround(emptied(request.getfixturevalue("region")))


@pytest.fixture
def aws(region: Region) -> AwsGround:
    return AwsGround(emptied(region))


def found(port: NodeIdentities) -> tuple[set[str], set[str]]:
    all_ = port.find()
    return {item.name for item in all_.profiles}, {item.name for item in all_.roles}


def test_what_is_found_is_of_all_clusters_with_what_launches_use(ground: Ground) -> None:
    assert found(ground.port) == (set(), set())
    for cluster in ("demo", "other"):
        ground.role(f"role-{cluster}", cluster)
        ground.profile(f"profile-{cluster}", f"role-{cluster}", cluster)
    ground.use("profile-demo", "role-demo")
    all_ = ground.port.find()
    assert {(item.name, item.cluster, item.role, item.holds) for item in all_.profiles} == {
        (f"profile-{cluster}", cluster, f"role-{cluster}", (f"role-{cluster}",)) for cluster in ("demo", "other")
    }
    assert {(item.name, item.cluster) for item in all_.roles} == {(f"role-{c}", c) for c in ("demo", "other")}
    assert all_.current == {"profile-demo"}
    assert [item.name for item in all_.superseded] == ["profile-other"]
    assert all_.unheld == ()


def test_carriers_are_the_instances_of_the_profiles_asked_for(ground: Ground) -> None:
    ground.role("nodes")
    for name in ("a", "b", "c"):
        ground.profile(name, "nodes")
    ids = {name: {ground.run(name) for _ in range(count)} for name, count in (("a", 3), ("c", 1))}
    profiles = {item.name: item for item in ground.port.find().profiles}
    asked = ground.port.carriers([profiles["a"], profiles["b"]])
    assert asked == {"a": tuple(sorted(ids["a"]))}


def test_a_profile_ends_and_ending_it_again_is_no_error(ground: Ground) -> None:
    ground.role("nodes")
    ground.profile("old", "nodes")
    ground.profile("new", "nodes")
    old = next(item for item in ground.port.find().profiles if item.name == "old")
    for _ in range(2):
        ground.port.end_profile(old)
        assert found(ground.port) == ({"new"}, {"nodes"})


def test_a_role_ends_with_its_entry_and_ending_it_again_is_no_error(ground: Ground) -> None:
    ground.role("nodes")
    ground.role("others")
    nodes = next(item for item in ground.port.find().roles if item.name == "nodes")
    assert ground.entries() == {"nodes", "others"}
    for _ in range(2):
        ground.port.end_role(nodes)
        assert found(ground.port)[1] == {"others"}
        assert ground.entries() == {"others"}
    assert ground.port.holders(nodes) == ()


def test_holders_are_anybodys_profiles(ground: Ground) -> None:
    ground.role("nodes")
    ground.profile("ours", "nodes")
    ground.hold_elsewhere("theirs", "nodes")
    (nodes,) = ground.port.find().roles
    assert ground.port.holders(nodes) == ("ours", "theirs")
    assert found(ground.port)[0] == {"ours"}


# The adapter alone


def test_another_install_with_the_same_roles_and_clusters_is_not_found(aws: AwsGround) -> None:
    for install in ("shiplap", "shiplap-eu"):
        aws.role(f"role-{install}", install=install)
        aws.profile(f"profile-{install}", f"role-{install}", install=install)
        aws.use(f"profile-{install}", "nodes", install=install)
    for install in ("shiplap", "shiplap-eu"):
        port = aws.of(install)
        assert found(port) == ({f"profile-{install}"}, {f"role-{install}"})
        assert port.find().current == {f"profile-{install}"}


@pytest.mark.parametrize("state", ["pending", "running", "stopped", "shutting-down", "terminated"])
def test_an_instance_carries_its_profile_until_it_is_terminated(aws: AwsGround, state: str) -> None:
    aws.role("nodes")
    aws.profile("old", "nodes")
    name = aws.run("old")
    (profile,) = aws.port.find().profiles
    behaviour, ec2 = aws.region.emulator.behaviour, aws.region.client("ec2")
    aws.region.control.timing(pending_s=20, terminating_s=30)
    if state != "pending":
        behaviour.advance(60)
    if state == "stopped":
        ec2.stop_instances(InstanceIds=[name])
    if state in ("shutting-down", "terminated"):
        ec2.terminate_instances(InstanceIds=[name])
    if state == "terminated":
        behaviour.advance(3600)
    assert aws.port.carriers([profile]) == ({} if state == "terminated" else {"old": (name,)})


@pytest.mark.parametrize(
    ("code", "message", "ends"),
    [
        ("ResourceNotFoundException", "No cluster found for name: demo.", True),
        ("InvalidRequestException", "The cluster's authentication mode must be set to one of [API] to do this.", True),
        ("InvalidRequestException", "The cluster is being updated.", False),
        ("AccessDeniedException", "no", False),
    ],
)
def test_a_role_stays_while_its_entry_may_still_be_there(
    aws: AwsGround, code: str, message: str, *, ends: bool
) -> None:
    aws.role("nodes")
    (nodes,) = aws.port.find().roles
    aws.eks.refusal = ClientError({"Error": {"Code": code, "Message": message}}, "DeleteAccessEntry")
    if ends:
        aws.port.end_role(nodes)
    else:
        with pytest.raises(AwsError) as refused:
            aws.port.end_role(nodes)
        assert refused.value.code == code
    assert found(aws.port)[1] == (set() if ends else {"nodes"})


def test_more_profiles_than_one_request_takes_are_all_asked_about(aws: AwsGround) -> None:
    aws.role("nodes")
    profiles = [
        InstanceProfile(f"p{n:03}", f"arn:aws:iam::1:instance-profile/p{n:03}", "demo", "nodes") for n in range(401)
    ]
    for name in ("p000", "p200", "p400"):
        aws.profile(name, "nodes")
        aws.run(name)
    assert sorted(aws.port.carriers(profiles)) == ["p000", "p200", "p400"]


# What is kept

KEPT = KeptIdentities(
    (KeptProfile("old", "demo", "nodes", 1_700_000_000.0, 7, ("i-1", "i-2")), KeptProfile("empty", "demo", "x", 5.0)),
    (KeptRole("own", "demo", ("theirs",)),),
)


@pytest.fixture(params=["fake", "s3"])
def store(request: pytest.FixtureRequest) -> KeptIdentityStore:
    if request.param == "fake":
        return FakeKeptIdentities()
    return BucketKeptIdentities(request.getfixturevalue("s3"), "bucket", REGION)


def test_what_is_kept_is_loaded_as_it_was_saved(store: KeptIdentityStore) -> None:
    assert store.load() == KeptIdentities()
    for kept in (KEPT, KeptIdentities()):
        store.save(kept)
        assert store.load() == kept


def test_what_cannot_be_read_is_not_taken_for_nothing_and_regions_are_apart(s3: Any) -> None:
    store = BucketKeptIdentities(s3, "bucket", REGION)
    s3.put_object(Bucket="bucket", Key=f"{IDENTITIES_PREFIX}{REGION}.json", Body=b"{")
    with pytest.raises(StoreError, match=f"{REGION}.json holds no identities"):
        store.load()
    assert BucketKeptIdentities(s3, "bucket", "eu-west-1").load() == KeptIdentities()
