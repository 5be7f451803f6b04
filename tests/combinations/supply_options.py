"""Options of NodePools, EC2NodeClasses, instance types and what changes them: each function adds one to a draft.

Every public function of this module is an option; its name is the option's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.manifests.custom_resources import CapacityBuffer, NodeOverlay, PodTemplate
from tests.builders.pools import rule
from tests.combinations.cluster_draft import (
    BROKEN_CLASS,
    FAMILY,
    OTHER_CLASS,
    TAINT,
    TEAM,
    ZONES,
    ClusterDraft,
    PoolDraft,
    arm_type,
)
from tests.conformance.catalogues import GPU_A
from tests.rules import KIND, TYPE, ZONE


def second_pool(draft: ClusterDraft) -> None:
    draft.pools.append(PoolDraft("pool-1"))


def pool_weight(draft: ClusterDraft) -> None:
    draft.some_pool().fields["weight"] = draft.rng.randint(1, 20)


def cpu_limit(draft: ClusterDraft) -> None:
    draft.some_pool().limit("cpu", draft.rng.choice(["4", "10", "17", "40", "200"]))


def memory_limit(draft: ClusterDraft) -> None:
    draft.some_pool().limit("memory", draft.rng.choice(["8Gi", "30Gi", "100Gi"]))


def node_limit(draft: ClusterDraft) -> None:
    draft.some_pool().limit("nodes", draft.rng.choice(["1", "3", "8"]))


def accelerator_limit(draft: ClusterDraft) -> None:
    draft.some_pool().limit(GPU_A, draft.rng.choice(["0", "2"]))


def pool_taint(draft: ClusterDraft) -> None:
    """A NodePool for those that tolerate its taint, beside another."""
    draft.pools.append(PoolDraft("dedicated"))
    draft.some_pool().fields["taints"] = [draft.rng.choice([TAINT, {**TAINT, "effect": "PreferNoSchedule"}])]


def startup_taint(draft: ClusterDraft) -> None:
    draft.some_pool().fields["startup_taints"] = [{"key": "cni", "value": "wait", "effect": "NoSchedule"}]


def pool_label(draft: ClusterDraft) -> None:
    draft.some_pool().fields["labels"] = {TEAM: draft.rng.choice(["red", "blue"])}


def open_label(draft: ClusterDraft) -> None:
    """A requirement for a label that no instance type has: the node gets one of its values."""
    draft.some_pool().restrict(rule(TEAM, "In", "red", "blue"))


def tiers(draft: ClusterDraft) -> None:
    draft.some_pool().restrict(rule(FAMILY, "In", draft.rng.choice(["c", "m"]), "*"))


def min_values(draft: ClusterDraft) -> None:
    draft.some_pool().restrict(rule(TYPE, "Exists", min_values=draft.rng.randint(2, 4)))


def best_effort_min_values(draft: ClusterDraft) -> None:
    draft.settings["min_values_policy"] = "BestEffort"
    draft.some_pool().restrict(rule(FAMILY, "Exists", min_values=draft.rng.randint(2, 3)))


def static_pool(draft: ClusterDraft) -> None:
    draft.pools.append(PoolDraft("static", fields={"replicas": draft.rng.randint(0, 3)}))


def pool_zones(draft: ClusterDraft) -> None:
    draft.some_pool().restrict(rule(ZONE, "In", *sorted(draft.rng.sample(ZONES, draft.rng.randint(1, 2)))))


def pool_capacity_type(draft: ClusterDraft) -> None:
    pool = draft.some_pool()
    pool.rules.append(rule(KIND, "In", draft.rng.choice(["spot", "on-demand"])))


def few_types(draft: ClusterDraft) -> None:
    draft.some_pool().restrict(rule(TYPE, "In", *draft.rng.sample(sorted(draft.types), 2)))


def disruption_budget(draft: ClusterDraft) -> None:
    pool = draft.some_pool()
    pool.fields["budgets"] = [{"nodes": draft.rng.choice(["0", "1", "50%"])}]


def when_empty(draft: ClusterDraft) -> None:
    draft.some_pool().fields["policy"] = "WhenEmpty"


def other_node_class(draft: ClusterDraft) -> None:
    """An EC2NodeClass without subnets in the first zone."""
    draft.some_pool().fields["node_class"] = OTHER_CLASS


def broken_node_class(draft: ClusterDraft) -> None:
    draft.pools.append(PoolDraft("unready", fields={"limits": {}, "node_class": BROKEN_CLASS, "weight": 50}))


def other_architecture(draft: ClusterDraft) -> None:
    draft.types["a.xlarge"] = arm_type()


def sold_out_zone(draft: ClusterDraft) -> None:
    zone = draft.rng.choice(ZONES)
    _change_offerings(draft, lambda offer: replace(offer, available=offer.available and offer.zone != zone))


def sold_out_spot(draft: ClusterDraft) -> None:
    share = draft.rng.choice([0.3, 1.0])
    rng = draft.rng

    def sold(offer: Offering) -> Offering:
        gone = offer.capacity_type == "spot" and rng.random() < share
        return replace(offer, available=offer.available and not gone)

    _change_offerings(draft, sold)


def _change_offerings(draft: ClusterDraft, change: Callable[[Offering], Offering]) -> None:
    for name, item in draft.types.items():
        draft.types[name] = replace(item, offerings=tuple(map(change, item.offerings)))


def reserved_capacity(draft: ClusterDraft) -> None:
    """A capacity reservation with one or two instances left."""
    name = draft.rng.choice(sorted(draft.types))
    item = draft.types[name]
    held = Offering(
        draft.rng.choice(ZONES),
        "reserved",
        0.00001,
        reservation_id="cr-1",
        reservation_capacity=draft.rng.randint(1, 2),
        reservation_type="default",
    )
    draft.types[name] = replace(item, offerings=(*item.offerings, held))
    draft.settings["reserved_policy"] = draft.rng.choice(["Strict", "Fallback"])


def unverified_types(draft: ClusterDraft) -> None:
    """Types of which no node has been seen: one claim at a time may rely on their estimate."""
    for name in draft.rng.sample(sorted(draft.types), 3):
        draft.types[name] = _unverified(draft.types[name])


def _unverified(item: InstanceType) -> InstanceType:
    careful = item.capacity | {"memory": int(item.capacity["memory"] * 0.9)}
    return replace(item, verified=False, careful=careful, ami="ami", kubelet_hash="k")


def price_overlay(draft: ClusterDraft) -> None:
    spec = {"requirements": [rule(FAMILY, "In", "c")], "priceAdjustment": draft.rng.choice(["+30%", "-20%"])}
    draft.overlays.append(msgspec.convert({"metadata": {"name": "price"}, "spec": spec}, NodeOverlay))


def capacity_overlay(draft: ClusterDraft) -> None:
    device = "example.com/device"
    spec = {"requirements": [rule(FAMILY, "In", "m")], "capacity": {device: "4"}}
    draft.overlays.append(msgspec.convert({"metadata": {"name": "device"}, "spec": spec}, NodeOverlay))
    draft.rng.choice(draft.workloads).request(device, "1")


def capacity_buffer(draft: ClusterDraft) -> None:
    """Room for a few pods that do not exist."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}
    template = {
        "metadata": {"name": "spare", "namespace": "default"},
        "template": {"spec": {"containers": [container]}},
    }
    draft.templates.append(msgspec.convert(template, PodTemplate))
    spec = {"podTemplateRef": {"name": "spare"}, "replicas": draft.rng.randint(1, 4)}
    made = {"metadata": {"name": "spare", "namespace": "default"}, "spec": spec}
    draft.buffers.append(msgspec.convert(made, CapacityBuffer))
