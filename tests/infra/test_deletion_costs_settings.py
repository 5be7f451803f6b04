"""The key `deletionCosts` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.kubernetes.labels import MANAGED_COST
from shiplap.policies.deletion_costs.deletion_costs_settings import DeletionCostSettings
from shiplap_cdk.install_document import inspect_install
from tests.infra.written_installs import WRITTEN, refusal, written


@pytest.mark.parametrize("mode", ["annotated", "remove"])
def test_deletion_costs_are_set_per_cluster(folder: Path, mode: str) -> None:
    for off in ("", "    deletionCosts: {mode: off}\n"):
        assert written(folder, WRITTEN + off).clusters[0].settings.policy(DeletionCostSettings) is None
    (cluster,) = written(folder, WRITTEN + f"    deletionCosts: {{mode: {mode}, mostWrites: 3}}\n").clusters
    settings = cluster.settings.policy(DeletionCostSettings)
    assert settings is not None
    assert (settings.mode, settings.most_writes) == (mode, 3)
    assert cluster.settings.policies_on == ("deletion_costs",)


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [("mode: all", "mode", "off, annotated, remove"), ("mostWrites: 0", "mostWrites", "must be 1 or more")],
)
def test_what_cannot_be_is_refused(folder: Path, line: str, field: str, reason: str) -> None:
    error = refusal(folder, WRITTEN + f"    deletionCosts: {{{line}}}\n")
    assert error.field == f"clusters[0].deletionCosts.{field}"
    assert reason in error.reason


def test_a_node_pool_that_asks_for_costs_in_vain_is_warned_of(folder: Path) -> None:
    manifests, named = folder / "manifests" / "nodes.yaml", "kind: NodePool\nmetadata:\n"
    annotated = f"{named}  annotations: {{{MANAGED_COST}: managed}}\n"
    manifests.write_text(manifests.read_text().replace(named, annotated, 1))
    for settings, warnings in (("", 1), ("    deletionCosts: {mode: annotated}\n", 0)):
        (folder / "shiplap.yaml").write_text(WRITTEN + settings)
        found = inspect_install(folder / "shiplap.yaml").warnings
        assert [item.field for item in found] == [f"metadata.annotations[{MANAGED_COST}]"] * warnings
