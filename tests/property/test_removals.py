"""Compiled once or compiled anew, a cluster without some of its nodes is planned the same."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from shiplap.scheduling.removal import Removals
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.living_cluster import LivingCluster
from tests.property.drawn_bodies import bodies
from tests.thoroughness import draws

replace = msgspec.structs.replace
ZONES = (("on-demand", Z1), ("on-demand", Z2))
TYPES = (
    fake_type("small", cpu="2", memory="4Gi", pods="10", price=1.0, offerings=ZONES),
    fake_type("large", cpu="16", memory="32Gi", pods="50", price=7.0, offerings=ZONES),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    limits = draw(st.sampled_from([{}, {"cpu": "40"}, {"nodes": "6"}]))
    cluster = LivingCluster([pool("plain", limits=limits)], TYPES, settings=SchedulingSettings(explore=False))
    kinds = draw(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["500m", "1", "3"])), min_size=1, max_size=14))
    for place, (kind, cpu) in enumerate(kinds):
        cluster.create([pod(f"p{place}", cpu=cpu, **bodies(kind))])
        if draw(st.booleans()):
            cluster.schedule()
    cluster.schedule()
    cluster.delete([key for key, item in cluster.pods.items() if not item.spec.node_name])
    cluster.delete(draw(st.sets(st.sampled_from(sorted(cluster.pods)), max_size=6)) if cluster.pods else ())
    return cluster.snapshot()


@settings(derandomize=True, deadline=None, max_examples=draws(150))
@given(clusters(), st.data())
def test_a_removal_is_planned_as_if_compiled_anew(snapshot: Snapshot, data: st.DataObject) -> None:
    names = sorted(node.metadata.name for node in snapshot.view.nodes)
    if not names:
        return
    removals = Removals(snapshot, names)
    for _ in range(2):
        removed = data.draw(st.sets(st.sampled_from(names), min_size=1))
        at = rfc3339(snapshot.now)
        nodes = tuple(
            replace(node, metadata=replace(node.metadata, deletion_timestamp=at))
            if node.metadata.name in removed
            else node
            for node in snapshot.view.nodes
        )
        anew = plan(replace(snapshot, view=replace(snapshot.view, nodes=nodes)))
        asked, _ = removals.plan_without(removed)
        assert asked.node_claims == anew.node_claims
        assert asked.existing_nodes == anew.existing_nodes
        assert asked.unschedulable == anew.unschedulable
