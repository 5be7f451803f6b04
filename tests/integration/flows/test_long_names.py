"""Names as long as Kubernetes takes them: what is derived of a pool and its EC2NodeClass stays within every limit."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.aws import tags
from shiplap.aws.userdata.bootstrap import bootstrap_of_claim
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import claim_name, label_value_of, label_value_problem, name_of_label, subdomain_problem
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.disrupted import Disrupted, kinds
from tests.integration.flows.stage import NODE_CLASS

LONG = "a" * 62 + "." + "b" * 190
ALIKE = "a" * 62 + "." + "b" * 189 + "c"
CLASS = "c" * 253


def renamed(*names: str) -> Disrupted:
    """The stage of the disrupt flow, its pool and EC2NodeClass under other names."""
    stage = Disrupted()
    (pool,) = stage.settings.manifests.node_pools
    plain = msgspec.to_builtins(pool)
    plain["spec"]["template"]["spec"]["nodeClassRef"]["name"] = CLASS
    pools = tuple(msgspec.convert({**plain, "metadata": {"name": name}}, NodePool) for name in names)
    node_class = msgspec.structs.replace(NODE_CLASS, metadata=msgspec.structs.replace(NODE_CLASS.metadata, name=CLASS))
    manifests = Manifests(node_pools=pools, node_classes=(node_class,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    return stage


def begun() -> Disrupted:
    stage = renamed(LONG)
    stage.add_pods(5, cpu="1200m", memory="2Gi")
    stage.play_on()
    stage.run_pods()
    stage.clock.advance(600)
    return stage


def test_what_is_derived_from_long_names_stays_within_every_limit() -> None:
    stage = begun()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.INITIALIZED
    assert (claim.plan.node_pool, claim.plan.node_class) == (LONG, CLASS)
    assert subdomain_problem(claim.name, 63) is None
    (marks,) = (item["metadata"]["labels"] for item in stage.objects("nodes").values())
    assert all(label_value_problem(value) is None for value in marks.values())
    assert marks[labels.NODE_POOL] == label_value_of(LONG)
    assert marks[labels.NODE_CLASS] == label_value_of(CLASS)
    (node_class,) = stage.settings.manifests.node_classes
    made = tags.of_pool(claim.cluster, claim.plan.node_pool, claim.plan.node_class, node_class.spec.tags, "shiplap")
    assert all(len(key) <= 128 and len(value) <= 256 for key, value in made.items())
    (request, *_) = stage.compute.requests
    written = bootstrap_of_claim(claim, node_class, request.resolved, "on-demand", 29).labels
    assert all(label_value_problem(value) is None for value in written.values())


def test_nodes_of_a_pool_with_a_long_name_are_filled_replaced_and_kept() -> None:
    stage = begun()
    before = {item.id for item in stage.compute.alive()}
    stage.minutes(3)
    assert {item.id for item in stage.compute.alive()} == before
    for number in range(1, 5):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    stage.minutes(14)
    assert kinds(stage) == ["m6i.large"]
    assert all(subdomain_problem(claim.name, 63) is None for claim in stage.claims())
    stage.add_pods(1, cpu="100m", memory="100Mi", prefix="late")
    stage.sweep()
    assert len(stage.compute.alive()) == 1, "the pod has room on the node there is"


def test_limits_count_the_nodes_of_a_pool_with_a_long_name() -> None:
    stage = begun()
    (pool,) = stage.settings.manifests.node_pools
    limited = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits={"nodes": 1}))
    manifests = msgspec.structs.replace(stage.settings.manifests, node_pools=(limited,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    stage.add_pods(20, cpu="1200m", memory="2Gi", prefix="more")
    stage.sweep()
    assert len(stage.compute.alive()) == 1


def test_a_pod_selects_a_pool_with_a_long_name_by_its_label() -> None:
    stage = renamed(ALIKE, LONG)
    stage.add_pods(1)
    pod = stage.server.list("pods").items[0]["metadata"]["name"]
    selector = {"spec": {"nodeSelector": {labels.NODE_POOL: label_value_of(ALIKE)}}}
    stage.server.patch("pods", pod, selector)
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.plan.node_pool == ALIKE


@pytest.mark.parametrize("name", ["a", "a" * 63, "a" * 64, LONG, ALIKE, "a." * 126 + "a"])
def test_the_value_of_a_label_is_stable_and_leads_back(name: str) -> None:
    value = label_value_of(name)
    assert label_value_problem(value) is None
    assert (value == name) is (len(name) <= 63)
    assert name_of_label(value, ["other", ALIKE, LONG, name]) == name
    assert name_of_label(value, []) == value


def test_two_long_names_that_begin_alike_have_two_values() -> None:
    assert label_value_of(LONG) != label_value_of(ALIKE)
    assert label_value_of("a" * 64) == "a" * 52 + "-ffe054fe7a"


@pytest.mark.parametrize("pool", ["a", "a.b", "a" * 63, LONG, "a" * 50 + "." * 1 + "b" * 200])
@pytest.mark.parametrize("suffix", ["abcdef", "0123456789-0", "0123456789-12"])
def test_names_of_claims_are_dns_labels(pool: str, suffix: str) -> None:
    name = claim_name(pool, suffix)
    assert subdomain_problem(name, 63) is None
    assert "." not in name
    assert name.endswith(f"-{suffix}")
