"""The inspection of EC2NodeClasses, what it tells, and what a decision makes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.errors import AwsError, AwsThrottled, NodeClassNotReady, StoreError
from shiplap.flows.catalog.inspect import inspect, user_data_texts
from shiplap.flows.catalog.inspections import inspect_all
from shiplap.flows.planning.decision_inputs import read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import priced_snapshot
from shiplap.instances.catalog.resolved_nodeclass import Ami, CapacityReservation
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    InstallStatus,
    NodeClassStatus,
    SecurityGroup,
    manifest_digest,
)
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import PODS
from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec, Manifests
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.stores import FakeStatus
from tests.builders.pools import family_pool
from tests.integration.flows.pools_of_classes import of_class
from tests.integration.flows.stage import ZONES, Stage, catalog


class Ground:
    """A stage whose EC2NodeClass says what a test wants it to say, beside a sound one that another pool uses."""

    def __init__(self, family: str = "Bottlerocket", amis: tuple[Ami, ...] = (), **spec: Any) -> None:
        self.stage = Stage()
        if amis:
            fake = FakeCompute(self.stage.clock, zones=ZONES, amis={"odd": amis})
            self.stage.context = msgspec.structs.replace(self.stage.context, compute=fake)
            self.stage.compute = fake
        odd = EC2NodeClass(ObjectMeta(name="odd"), EC2NodeClassSpec(ami_family=family, **spec))
        sound = EC2NodeClass(ObjectMeta(name="sound"), EC2NodeClassSpec(ami_family="Bottlerocket"))
        pools = (of_class(family_pool("a", ("c7i",)), "odd"), of_class(family_pool("b", ("m6i",)), "sound"))
        manifests = Manifests(node_pools=pools, node_classes=(odd, sound))
        self.settings: ClusterSettings = msgspec.structs.replace(self.stage.settings, manifests=manifests)
        self.status = FakeStatus()
        self.context = msgspec.structs.replace(self.stage.context, status=self.status)

    def inspect(self) -> ClusterStatus:
        return inspect(self.settings, catalog(), self.context)

    def odd(self) -> NodeClassStatus:
        found = self.inspect()
        assert found.node_classes[1].ready.status == "True"  # whatever is wrong with the other one
        assert found.pools[1].ready == "True"
        return found.node_classes[0]

    def not_ready(self) -> dict[str, str]:
        """Return the reasons why decisions cannot use NodeClasses, by name."""
        supply = read_supply(self.settings, self.context)
        priced = priced_snapshot(self.settings, read_inputs(self.settings, self.context), supply, self.context)
        return {item.node_class: item.not_ready for item in priced.snapshot.catalogs}


def false_conditions(status: NodeClassStatus) -> dict[str, str]:
    return {item.type: item.reason for item in status.conditions if item.status == "False"}


def test_what_is_told_of_a_class_that_is_ready() -> None:
    found = Ground().inspect()
    odd = found.node_classes[0]
    assert false_conditions(odd) == {}
    assert (odd.name, odd.family, odd.instance_profile) == ("odd", "Bottlerocket", "twin")
    assert [subnet.zone for subnet in odd.subnets] == list(ZONES)
    assert odd.security_groups == (SecurityGroup("sg-twin", "twin"),)
    assert odd.instance_types == len(catalog().types)
    assert [(item.name, item.node_class, item.ready) for item in found.pools] == [
        ("a", "odd", "True"),
        ("b", "sound", "True"),
    ]


def test_all_that_a_class_resolves_to_is_told() -> None:
    amis = (Ami("ami-2", "new", "2026-01-01"), Ami("ami-1", "old", "2025-01-01"))
    ground = Ground(amis=amis)
    ground.stage.compute.reservations = (CapacityReservation("cr-1", "m6i.large", ZONES[0], available=2),)
    resolved = ground.stage.compute.inspect(ground.settings.manifests.node_classes[0])
    odd = ground.odd()
    assert odd.amis == resolved.amis == amis
    assert [item.id for item in odd.capacity_reservations] == ["cr-1"]
    assert (odd.subnets, odd.placement_group) == (resolved.subnets, resolved.placement_group)
    assert (odd.manifest, odd.family) == (manifest_digest(ground.settings.manifests.node_classes[0]), resolved.family)


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        ({"kubelet": {"maxPods": "100 / (vcpus - 2)"}}, "KubeletExpressionEvaluationFailed", "division by zero"),
        ({"kubelet": {"maxPods": "cores * 10"}}, "KubeletExpressionInvalid", "unknown variable 'cores'"),
        ({"kubelet": {"maxPod": 3}}, "InvalidKubeletConfiguration", "did you mean maxPods"),
        ({"kubelet": {"kubeReserved": {"cpu": "-1"}}}, "InvalidKubeletConfiguration", "must not be negative"),
        ({"kubelet": {"podsPerCore": 3}}, "UnsupportedKubeletConfiguration", "Bottlerocket has no podsPerCore"),
        ({"user_data": "[settings"}, "UserDataInvalid", "not TOML"),
        ({"user_data": f'motd = "{"x" * 20000}"\n[settings]\n'}, "", ""),
        ({"user_data": f'[settings]\nmotd = "{"x" * 20000}"\n'}, "UserDataSizeLimitExceeded", "EC2 takes 16384"),
        (
            {"family": "Windows2019", "kubelet": {"syncFrequency": "1m"}},
            "UnsupportedKubeletConfiguration",
            "AL2023 can",
        ),
    ],
)
def test_what_cannot_become_a_node_is_found_before_pods_need_it(spec: dict[str, Any], reason: str, text: str) -> None:
    status = Ground(**spec).odd()
    if not reason:
        assert false_conditions(status) == {}
        return
    assert false_conditions(status) == {"ValidationSucceeded": reason, "Ready": reason}
    assert text in status.ready.message


def test_an_annotation_that_cannot_be_read() -> None:
    ground = Ground()
    odd, sound = ground.settings.manifests.node_classes
    annotated = ObjectMeta(name="odd", annotations={"shiplap.dev/prefix-delegation": "maybe"})
    classes = (msgspec.structs.replace(odd, metadata=annotated), sound)
    manifests = msgspec.structs.replace(ground.settings.manifests, node_classes=classes)
    ground.settings = msgspec.structs.replace(ground.settings, manifests=manifests)
    assert false_conditions(ground.odd())["ValidationSucceeded"] == "InvalidAnnotations"


def test_a_problem_of_the_class_is_its_pools_reason() -> None:
    found = Ground(user_data="[settings").inspect()
    assert found.pools[0].ready == "False"
    assert "not TOML" in found.pools[0].reason


def test_a_selector_that_matches_nothing() -> None:
    ground = Ground()
    ground.stage.compute.not_ready["odd"] = NodeClassNotReady("no image", code="AMINotFound")
    status = ground.odd()
    assert false_conditions(status) == {
        "AMIsReady": "AMINotFound",
        "ValidationSucceeded": "DependenciesNotReady",
        "Ready": "AMINotFound",
    }


def test_amis_that_no_instance_type_can_boot() -> None:
    ami = Ami("ami-1", "x", "2026-01-01", requirements=(("kubernetes.io/arch", "In", ("arm64",)),))
    assert false_conditions(Ground(amis=(ami,)).odd())["AMIsReady"] == "NoInstanceTypes"


def test_a_deprecated_ami_is_a_warning() -> None:
    new = Ami("ami-2", "new", "2026-01-01")
    old = Ami("ami-1", "old", "2020-01-01", deprecated=True)
    assert Ground(amis=(new, old)).odd().warnings == ()
    (warning,) = Ground(amis=(old,)).odd().warnings
    assert "ami-1 (old) is deprecated" in warning


def test_user_data_that_is_nearly_too_large_is_a_warning() -> None:
    (warning,) = Ground(user_data=f'[settings]\nmotd = "{"x" * 14800}"\n').odd().warnings
    assert warning.startswith("user data is 1")


def test_when_aws_does_not_answer_nothing_is_known() -> None:
    ground = Ground()
    ground.stage.faults.on("before", "compute.inspect", AwsThrottled("slow down", code="RequestLimitExceeded"))
    found = ground.inspect()
    assert {item.status for item in found.node_classes[0].conditions} == {"Unknown"}
    assert found.pools[0].ready == "Unknown"


@pytest.mark.parametrize(("code", "reason"), [("RequestLimitExceeded", "RequestLimitExceeded"), ("", "NoAnswer")])
def test_what_aws_said_is_the_reason_of_what_is_not_known(code: str, reason: str) -> None:
    ground = Ground()
    ground.stage.faults.on("before", "compute.inspect", AwsError("no", code=code))
    ready = ground.inspect().node_classes[0].ready
    assert (ready.status, ready.reason, ready.message) == ("Unknown", reason, "no")


def test_a_pool_without_its_class() -> None:
    ground = Ground()
    manifests = msgspec.structs.replace(ground.settings.manifests, node_classes=())
    ground.settings = msgspec.structs.replace(ground.settings, manifests=manifests)
    assert [item.reason for item in ground.inspect().pools] == [
        "there is no EC2NodeClass 'odd'",
        "there is no EC2NodeClass 'sound'",
    ]


def test_all_clusters_are_stored_at_once() -> None:
    ground = Ground()
    status = inspect_all([(ground.settings, ground.context)], {"eu-west-1": catalog()}, ground.status)
    assert ground.status.load() == status
    assert [item.cluster for item in status.clusters] == ["demo"]
    again = inspect_all([(ground.settings, ground.context)], {"eu-west-1": catalog()}, ground.status)
    assert [item.cluster for item in again.clusters] == ["demo"]


# What decisions make of it


def test_a_decision_keeps_off_a_class_that_failed_its_inspection() -> None:
    ground = Ground(user_data="[settings")
    ground.status.save(InstallStatus((ground.inspect(),)))
    reasons = ground.not_ready()
    assert "UserDataInvalid" in reasons["odd"]
    assert reasons["sound"] == ""


@pytest.mark.parametrize("changed", ["manifest", "age"])
def test_an_inspection_of_something_else_or_long_ago_does_not_count(changed: str) -> None:
    ground = Ground(user_data="[settings")
    ground.status.save(InstallStatus((ground.inspect(),)))
    if changed == "age":
        ground.stage.clock.advance(2 * 3600)
    else:
        odd, sound = ground.settings.manifests.node_classes
        mended = msgspec.structs.replace(odd, spec=msgspec.structs.replace(odd.spec, user_data=""))
        manifests = msgspec.structs.replace(ground.settings.manifests, node_classes=(mended, sound))
        ground.settings = msgspec.structs.replace(ground.settings, manifests=manifests)
    assert ground.not_ready()["odd"] == ""


def test_what_a_decision_can_see_by_itself_is_not_taken_from_the_inspection() -> None:
    ground = Ground()
    ground.stage.compute.not_ready["odd"] = NodeClassNotReady("no image", code="AMINotFound")
    ground.status.save(InstallStatus((ground.inspect(),)))
    del ground.stage.compute.not_ready["odd"]
    assert ground.not_ready()["odd"] == ""


def test_expressions_are_worked_out_anew_by_every_decision() -> None:
    reasons = Ground(kubelet={"maxPods": "100 / (vcpus - 2)"}).not_ready()
    assert "division by zero" in reasons["odd"]
    assert reasons["sound"] == ""


def test_a_status_that_cannot_be_read_keeps_no_pod_waiting() -> None:
    ground = Ground()
    ground.stage.faults.on("before", "status.load", StoreError("denied"))
    ground.status.faults = ground.stage.faults
    assert set(ground.not_ready().values()) == {""}


def test_an_error_of_aws_is_no_verdict() -> None:
    ground = Ground()
    ground.stage.faults.on("before", "compute.inspect", AwsError("denied", code="UnauthorizedOperation"))
    ground.status.save(InstallStatus((ground.inspect(),)))
    assert ground.not_ready()["odd"] == ""


def test_an_alias_decides_the_family() -> None:
    terms = (AmiSelectorTerm(alias="bottlerocket@latest"),)
    assert Ground(family="", ami_selector_terms=terms, kubelet={"podsPerCore": 1}).odd().ready.status == "False"


def test_the_age_of_the_catalogue_is_measured_for_each_cluster() -> None:
    ground = Ground()
    old = msgspec.structs.replace(catalog(), refreshed_at=ground.stage.clock.now() - 90)
    ahead = msgspec.structs.replace(catalog(), refreshed_at=ground.stage.clock.now() + 5)
    inspect_all([(ground.settings, ground.context)], {"eu-west-1": old}, ground.status)
    inspect_all([(ground.settings, ground.context)], {"eu-west-1": ahead}, ground.status)
    assert [value for value, _ in ground.stage.meter.seen["CatalogAge"]] == [90.0, 0.0]


def test_user_data_is_made_with_the_longest_kubelet_settings_and_the_most_pods() -> None:
    """Nearly full user data is told of before a node of the largest type cannot be launched."""
    small, large = (
        msgspec.structs.replace(kind, capacity={**kind.capacity, PODS: pods}, kubelet_values=values)
        for kind, pods, values in zip(
            list(Stage().types.values())[:2],
            (10, 2000),
            ((), (("systemReserved", "memory", "x" * 400),)),
            strict=True,
        )
    )
    ground = Ground(kubelet={"systemReserved": {"memory": "1Mi"}})
    found = ground.context.compute.inspect(ground.settings.manifests.node_classes[0])
    for types in ([small, large], [large, small]):
        texts = list(user_data_texts(ground.settings, ground.settings.manifests.node_classes[0], found, types))
        assert all("2000" in text and "x" * 400 in text for text in texts)
        assert len(texts) == 1
