"""`shiplap doctor` compares a cluster with the RBAC manifest of rollouts where they are on, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import AwsError
from shiplap.policies.policy_settings import chosen
from shiplap.policies.rollouts.rollouts_settings import ANNOTATED, RolloutSettings
from shiplap.settings import ClusterSettings, Settings
from shiplap_cli.commands.doctor import check_results, cluster_checks, doctor
from tests.unit.cli.doctored_aws import NOW, RBAC, Aws, FreshCatalogues, reviews


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setattr(cluster_checks, "BucketCatalog", FreshCatalogues)
    return Aws()


def looked(aws: Aws, settings: Any, *refused: str) -> list[check_results.CheckResult]:
    checks = doctor.install_checks(
        "Shiplap",
        "",
        RBAC,
        myself=False,
        entering=reviews(*refused),
        client=aws.client,
        now=lambda: NOW,
        settings=settings,
    )
    return [item for item in check_results.run_checks(checks) if item.check == "rbac"]


def deployed(name: str, settings: RolloutSettings | None) -> Settings:
    """The settings of an install with two clusters, one of which has rollouts."""
    policies = chosen(settings) if settings is not None else ()
    first = ClusterSettings(name=name, region="eu-west-1", install="shiplap", policies=policies)
    return Settings((first, ClusterSettings(name="no-other", region="eu-west-1", install="shiplap")))


def test_what_rollouts_need_is_missed_where_they_are_on(aws: Aws) -> None:
    on = deployed("production", RolloutSettings(mode=ANNOTATED))
    first, second = looked(aws, lambda *_: on, "patch deployments")
    assert (first.verdict, second.verdict) == ("ok", "failed")
    assert "may not patch deployments" in second.says
    assert "kubectl apply -f docs/rbac-rollouts.yaml" in second.fix
    assert [item.verdict for item in looked(aws, lambda *_: on)] == ["ok", "ok"]


@pytest.mark.parametrize(
    "settings", [deployed("production", None), deployed("another", RolloutSettings(mode=ANNOTATED)), None]
)
def test_elsewhere_nothing_is_missed(aws: Aws, settings: Settings | None) -> None:
    read = None if settings is None else lambda *_: settings
    assert [item.verdict for item in looked(aws, read, "patch deployments")] == ["ok"]


def test_settings_that_cannot_be_read_say_so(aws: Aws) -> None:
    def refuse(*_: object) -> Settings:
        raise AwsError("no layer with settings")

    first, second = looked(aws, refuse)
    assert first.verdict == "ok"
    assert (second.verdict, "no layer with settings" in second.says) == ("unknown", True)
