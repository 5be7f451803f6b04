"""`shiplap status spending`: what a cluster costs by NodePool and namespace, beside its ceilings."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import AwsError, StoreError
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.policy_settings import chosen
from shiplap.settings import ClusterSettings, Settings
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, SpendingLedger
from shiplap_cli.commands.status import ceilings_spending as command
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.main import run
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import node_claim
from tests.conformance.priced_pools import priced

NOW = 1_795_910_400.0  # 2026-11-29
NOVEMBER = MonthOfSpending(
    "2026-11", 300_000_000, by_pool={"general": 250_000_000, "": 50_000_000}, by_namespace={"a": 90_000_000, "b": 1}
)
OCTOBER = MonthOfSpending("2026-10", 412_500_000)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> FakeState:
    """Of cluster prod, which has two ceilings and a node of $0.50 an hour that came ten hours ago."""
    found = FakeState()
    known = {"cluster": "prod", "instance_id": "i-1", "hourly": 0.5, "state": ClaimState.INITIALIZED}
    found.adopt(node_claim(name="a", node_pool="general", created_at=NOW - 10 * HOUR_S, **known))
    ceilings = (Ceiling(monthly=600.0), Ceiling(hourly=1.0, mode=CeilingMode.STOP))
    settings = ClusterSettings(name="prod", region="eu-west-1", policies=chosen(CeilingSettings(ceilings)))
    monkeypatch.setattr(command, "find_install", lambda **_: DeployedInstall("b"))
    monkeypatch.setattr(command, "sole_cluster", lambda *_: "prod")
    monkeypatch.setattr(command, "cluster_settings_of", lambda *_: settings)
    monkeypatch.setattr(DeployedInstall, "state", lambda _: found)
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    return found


def posted(state: FakeState, month: MonthOfSpending, before: MonthOfSpending, until: float = NOW) -> None:
    state.post_ledger("prod", SpendingLedger(1, int(until), month, before, hours=(500_000,) * 30))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["status", "spending", *arguments, "-o", "json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_by_node_pool_and_namespace_beside_ceilings(state: FakeState, capsys: pytest.CaptureFixture[str]) -> None:
    posted(state, NOVEMBER, OCTOBER, NOW - HOUR_S)
    assert said(capsys) == {
        "cluster": "prod",
        "month": "2026-11",
        "spent": 300.5,
        "reserved": 24.0,
        "forecast": 324.5,
        "lastMonth": 412.5,
        "postedUntil": "2026-11-28T23:00:00Z",
        "nodePools": {"general": 250.5, "(others)": 50.0},
        "namespaces": {"(others)": 209.999999, "a": 90.0, "b": 0.000001},
        "ceilings": [
            {"title": "cluster prod, $600.00 per month", "mode": "warn", "limit": 600.0, "used": 324.5},
            {"title": "cluster prod, $1.00 per hour", "mode": "stop", "limit": 1.0, "used": 0.5},
        ],
    }


def test_the_hourly_ceiling_of_a_node_pool_is_one_of_them(
    state: FakeState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes that leave do not count. A NodePool that may cost nothing is closed, which is no ceiling in use."""
    pools = (priced("general", max_hourly_price="2.5"), priced("closed", max_hourly_price="0"), priced("free"))
    settings = ClusterSettings(name="prod", region="eu-west-1", manifests=Manifests(node_pools=pools))
    monkeypatch.setattr(command, "cluster_settings_of", lambda *_: settings)
    leaving = {"cluster": "prod", "node_pool": "general", "instance_id": "i-2", "state": ClaimState.DRAINING}
    state.adopt(node_claim(name="b", hourly=0.7, created_at=NOW - HOUR_S, **leaving))
    posted(state, NOVEMBER, OCTOBER)
    assert said(capsys)["ceilings"] == [
        {"title": "NodePool general, $2.50 per hour", "mode": "stop", "limit": 2.5, "used": 0.5},
    ]
    assert run(["status", "spending"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["NodePool", "general,", "$2.50", "per", "hour", "$0.50", "20%", "stop"] in rows


def test_a_page_of_80_columns(state: FakeState, capsys: pytest.CaptureFixture[str]) -> None:
    posted(state, NOVEMBER, OCTOBER)
    assert run(["status", "spending"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert ["general", "250.00", "83%"] in rows
    assert ["a", "90.00", "30%"] in rows
    assert ["cluster", "prod,", "$1.00", "per", "hour", "$0.50", "50%", "stop"] in rows


def test_a_month_that_has_just_begun_has_the_posted_one_before_it(
    state: FakeState, capsys: pytest.CaptureFixture[str]
) -> None:
    posted(state, OCTOBER, MonthOfSpending("2026-09", 7), NOW - HOUR_S)
    found = said(capsys, "prod")
    assert (found["spent"], found["lastMonth"], found["namespaces"]) == (0.5, 412.5, {"(others)": 0.0})


def test_without_a_ledger(state: FakeState, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "spending"]) == 1
    assert "prod keeps no ledger yet: write `ceilings` in shiplap.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("error", [AwsError("not authorized"), StoreError("not authorized")])
def test_what_cannot_be_asked(
    state: FakeState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(command, "cluster_settings_of", refused)
    assert run(["status", "spending"]) == 2
    assert "what is spent is not known: not authorized" in capsys.readouterr().err


@pytest.fixture
def install(state: FakeState, monkeypatch: pytest.MonkeyPatch) -> FakeState:
    """An install of two clusters, of which prod has a ledger."""
    regions = {"prod": "eu-west-1", "edge": "us-east-2"}
    clusters = tuple(ClusterSettings(name=name, region=region) for name, region in regions.items())
    monkeypatch.setattr(command, "settings_of", lambda _: Settings(clusters))
    monkeypatch.setattr(command, "account_id", lambda: "123456789012")
    posted(state, NOVEMBER, OCTOBER)
    return state


def test_charges_of_all_clusters_as_focus(
    install: FakeState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "november.csv"
    told = said(capsys, "--focus", str(file))
    assert told == {"file": str(file), "charges": 2, "clusters": ["prod"], "withoutLedger": ["edge"]}
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [row["BilledCost"] for row in rows] == ["250.000000", "50.000000"]
    assert run(["status", "spending", "prod", "--focus", str(file)]) == 0
    assert capsys.readouterr().out == f"wrote {file}: 2 charges of prod\n"


def test_charges_are_of_the_region_of_their_own_cluster(
    install: FakeState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install.post_ledger("edge", SpendingLedger(1, int(NOW), NOVEMBER, OCTOBER, hours=(500_000,) * 30))
    file = tmp_path / "november.csv"
    assert said(capsys, "--focus", str(file))["clusters"] == ["edge", "prod"]
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    regions = {(json.loads(row["Tags"])["shiplap.dev/cluster"], row["RegionId"]) for row in rows}
    assert regions == {("edge", "us-east-2"), ("prod", "eu-west-1")}


def test_focus_without_any_ledger(install: FakeState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeployedInstall, "state", lambda _: FakeState())
    assert run(["status", "spending", "--focus", str(tmp_path / "none.csv")]) == 1
    assert (tmp_path / "none.csv").read_text().count("\n") == 1
    assert run(["status", "spending", "--focus", str(tmp_path / "no folder" / "none.csv")]) == 2
