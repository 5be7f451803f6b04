"""Memory set aside as huge pages is no longer there as memory: kubelet takes it out of what pods may have."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.instances.catalog.type_catalog import InstanceType
from tests.builders.overlays import overlay
from tests.builders.pods import pod
from tests.builders.pools import rule
from tests.conformance.catalogues import fake_type
from tests.conformance.given import given
from tests.unit.instances.given_instances import GIB, MIB, known, resolved, seen, yields

TYPE, PAGES = "node.kubernetes.io/instance-type", "hugepages-2Mi"


def paged(**pages: str) -> InstanceType:
    extra = {f"hugepages-{size}": amount for size, amount in pages.items()}
    return fake_type("one", memory="32Gi", cpu="8", extra=extra)


def test_pages_of_all_sizes_come_out_of_memory() -> None:
    """As Karpenter's suite has it: 5Gi in pages of 2Mi and 10Gi in pages of 1Gi."""
    plain, with_pages = paged(), paged(**{"2Mi": "5Gi", "1Gi": "10Gi"})
    assert with_pages.allocatable["memory"] == plain.allocatable["memory"] - 15 * GIB
    assert with_pages.capacity["memory"] == plain.capacity["memory"]
    assert paged(**{"2Mi": "50Gi"}).allocatable["memory"] == 0


def test_the_careful_bound_loses_them_too() -> None:
    unseen = msgspec.structs.replace(paged(**{"2Mi": "5Gi"}), verified=False, careful={"memory": 30 * GIB})
    assert unseen.allocatable["memory"] - unseen.careful_allocatable["memory"] == 2 * GIB


@pytest.mark.parametrize(("memory", "fits"), [("3Gi", True), ("7.5Gi", False)])
def test_a_pod_finds_no_memory_where_an_overlay_says_pages_are(memory: str, fits: bool) -> None:
    kinds = [fake_type("one", memory="8Gi")]
    assert given(pod(memory="7.5Gi"), types=kinds).scheduled
    pages = overlay("pages", rule(TYPE, "In", "one"), capacity={PAGES: "4Gi"})
    outcome = given(pod(memory=memory, requests={PAGES: "4Gi"}), types=kinds, overlays=[pages])
    assert outcome.scheduled is fits
    if not fits:
        assert "memory short by" in outcome.left("pod").message


def test_a_node_that_reports_pages_teaches_what_is_left_once() -> None:
    """Its overhead is learned without them, so that they are not taken away twice."""
    kept = 500 * MIB
    before = yields("m5.large", answered=resolved())
    report = seen("m5.large", 7800 * MIB, kubelet=before.kubelet_hash, allocatable=6800 * MIB - kept)
    pages = {PAGES: 1000 * MIB}
    report = msgspec.structs.replace(report, capacity=report.capacity | pages, allocatable=report.allocatable | pages)
    after = yields("m5.large", answered=resolved(), learned=(known(report),))
    assert after.verified
    assert after.allocatable["memory"] == 6800 * MIB - kept
    assert after.allocatable[PAGES] == 1000 * MIB
    assert after.overhead["memory"] == kept
