"""Flows get the port to evidence where spot risk is on, and give plans its settings."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from shiplap.flows import install as installs
from shiplap.flows.install import Install
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.policies.policy_settings import chosen
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from tests.integration.flows.stage import Stage

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")
OFF = ClusterSettings(name="blue", region="us-east-1", endpoint="https://blue.example", token="t")
ON = replace(OFF, policies=chosen(SpotRiskSettings("observe")))


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The clients that are made, with their regions."""
    made: list[tuple[str, ...]] = []

    def client(*of: str) -> object:
        made.append(of)
        return MagicMock()

    monkeypatch.setattr(installs, "client", client)
    return made


def ports_of(settings: ClusterSettings) -> Any:
    return Install("schedule", Settings((settings,)), NAMES).context(settings).policy_ports


def test_evidence_is_read_from_a_table_of_the_install(clients: list[tuple[str, ...]]) -> None:
    port = ports_of(ON)["spot_evidence"]
    assert clients == []
    assert callable(port.read)
    assert clients == [("dynamodb",)]


def test_there_is_no_port_where_spot_risk_is_off(clients: list[tuple[str, ...]]) -> None:
    assert ports_of(OFF) == ports_of(replace(OFF, policies=chosen(SpotRiskSettings()))) == {}
    assert clients == []


def test_plans_get_the_settings_and_the_cost_of_a_move() -> None:
    stage, risk = Stage(), SpotRiskSettings("observe")
    stage.settings = replace(stage.settings, policies=chosen(risk))
    facts: Any = DecisionFacts(snapshot=MagicMock(), state=MagicMock(), catalog=MagicMock())
    (policy,) = ActivePolicies.of(stage.settings, stage.context).planning_inputs(facts)
    assert isinstance(policy, SpotRiskInput)
    assert (policy.known.settings, policy.known.move_cost) == (risk, stage.settings.disruption.move_cost)
