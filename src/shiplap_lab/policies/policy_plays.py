"""The parts of simulations that optional features add, found by the names of the features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.manifests.custom_resources import Manifests
from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.registry import parts
from shiplap.settings import Settings
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge.dollar_rules import DollarJudge
from shiplap_lab.judge.judge import Judge
from shiplap_lab.scenarios.scenario import Scenario

PlantedDefect = tuple[Callable[[], list[tuple[Any, str, Any]]], tuple[str, ...]]


class AccountPlay(NamedTuple):
    """The account of a simulation as it begins, for what features count on in it.

    `now` is in epoch seconds, `list_price` of a type in USD per hour on demand. `ports` are the fake ports of each
    install, by the names of features and ports.
    """

    scenario: Scenario
    seed: int
    now: float
    sold: Catalog
    list_price: Callable[[str], float]
    ports: tuple[dict[str, dict[str, object]], ...]


class PlayedState(Protocol):
    """The table `state` of an install, which tells of each item of a claim, and of all items after a restore."""

    @property
    def on_claim(self) -> list[Callable[[str | bytes], object]]: ...

    @property
    def on_restore(self) -> list[Callable[[Sequence[str | bytes], Sequence[str | bytes]], object]]: ...


class PlayedInstall(Protocol):
    """An install of a simulation; `policy_ports` are its fake ports by the names of features and ports."""

    @property
    def settings(self) -> Settings: ...

    @property
    def state(self) -> PlayedState: ...

    @property
    def policy_ports(self) -> dict[str, dict[str, object]]: ...


class PlayedReplicas(Protocol):
    """The controller of the ReplicaSets of a cluster."""

    def scale(self, uid: str, replicas: int, new_pod: Callable[[str], dict[str, Any]]) -> None:
        """From now on the ReplicaSet with this uid has so many pods."""


class PlayedCluster(Protocol):
    """A cluster of a simulation."""

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> ApiServer: ...

    @property
    def replicas(self) -> PlayedReplicas: ...


class PolicyWorld(NamedTuple):
    """The parts of a run that features act on. `now` is in epoch seconds; `record` writes a line of the trace.

    The clocks of functions are up to `apart_s` away from `now`. `is_disturbed` is True while a fault is active.
    """

    now: Callable[[], float]
    installs: tuple[PlayedInstall, ...]
    judge: Judge
    record: Callable[[str], None]
    apart_s: float
    clusters: Mapping[str, PlayedCluster]
    is_disturbed: Callable[[], bool]


class PolicyRun:
    """A feature in one run of the simulation, beside its functions. It overrides the points at which it does something.

    Attributes:
        rests: idle minutes may be left out; not if time alone changes what the feature does.
    """

    rests = True

    def manifests(self, written: Manifests) -> Manifests:
        """Return the manifests of a cluster as this run has them."""
        return written

    def begin(self, world: PolicyWorld) -> None:
        """Prepare the run: installs and judge are there, and no time has passed."""

    def moments(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        """Return what happens once the run plays, each with its seconds since the beginning."""
        return ()

    def look(self) -> None:
        """Do what is due, every ten seconds."""

    def is_under_way(self) -> bool:
        """Return True while the run must not come to rest."""
        return False

    def unmet(self) -> str:
        """Return what the run should have brought about and did not; empty if there is nothing."""
        return ""


def runs_of_policies(scenario: Scenario, seed: int, faults: Sequence[Fault]) -> tuple[PolicyRun, ...]:
    """Return what features do in a run."""
    return tuple(module.run(scenario, seed, faults) for _, module in parts("shiplap_lab", "run"))


def settings_of_policies(scenario: Scenario) -> list[PolicySettings]:
    """Return the settings of features, as the only cluster of a scenario has them."""
    found = (module.settings(scenario) for _, module in parts("shiplap_lab", "play"))
    return [item for item in found if item is not None]


def fake_ports(faults: Faults) -> dict[str, dict[str, object]]:
    """Return the fake ports of each feature, by the name of the feature and of the port."""
    return {name: module.fakes(faults) for name, module in parts("shiplap_lab", "fakes")}


def ports_of(made: dict[str, dict[str, object]], policies: tuple[str, ...]) -> dict[str, object]:
    """Return the ports of the features that are on."""
    return {port: fake for name in policies for port, fake in made.get(name, {}).items()}


def begin_accounts(play: AccountPlay, dollars: DollarJudge) -> None:
    """Give the account what features count on, and tell the judge what that pays."""
    for _, module in parts("shiplap_lab", "account"):
        module.begin(play, dollars)


def planted_in_policies() -> dict[str, PlantedDefect]:
    """Return the planted defects of features, by name."""
    return {name: defect for _, module in parts("shiplap_lab", "play") for name, defect in module.MUTANTS.items()}
