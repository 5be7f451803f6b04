"""The format of scenarios, and the one way to load them. Simulation and `shiplap lab dev` play the same form.

A scenario describes clusters, pods, the memory that nodes really have, and what happens: by the clock (`waves`,
`rhythms`, `faults`), or in `steps` that last until their expectations are met. It is either one YAML file that also
holds the NodePools and EC2NodeClasses, or a folder with `scenario.yaml` and a folder of manifests for each cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.documents import Document, read_documents, read_file
from shiplap.manifests.files.loading import check_documents
from shiplap.policies.registry import parts
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kinds import KINDS

FOLDER = Path(__file__).parent / "bundled"
FILE = "scenario.yaml"
KIND = "Scenario"

Constraint = Literal["spread", "pod-affinity", "volume-zone", "preemption"]
"""What may keep pods off nodes beside room and labels."""

InterruptionKind = Literal["spot", "rebalance"]


class ScenarioPart(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything in a Scenario."""


class ScenarioCluster(ScenarioPart, frozen=True):
    """One cluster: settings that differ from the defaults, and objects it starts with.

    `manifests` is a folder beside the scenario's file; without it the manifests in that file apply.
    """

    name: str
    manifests: str = ""
    kubernetes_version: str = "1.34"
    vm_memory_overhead_percent: float = 0.075
    prefix_delegation: str = "auto"
    reserved_enis: int = msgspec.field(default=0, name="reservedENIs")
    objects: tuple[dict[str, Any], ...] = ()
    ceilings: tuple[dict[str, Any], ...] = ()


class ScenarioSavingsPlan(ScenarioPart, frozen=True):
    """A Savings Plan whose rates are so far below on-demand prices; with a `family` an EC2 Instance Savings Plan."""

    dollars_per_hour: float
    discount_percent: float
    family: str = ""


class ScenarioImage(ScenarioPart, frozen=True):
    """An AMI of the played world, found through `ssm_parameters`. `architecture` x86_64 or arm64."""

    id: str
    name: str
    created: str
    architecture: str = "x86_64"
    ssm_parameters: tuple[str, ...] = ()


class NodeMemoryRule(ScenarioPart, frozen=True):
    """The memory that nodes of some types (globs) on some AMIs (globs) really have; the last matching rule counts.

    `memory` is a quantity. Else the memory lies at a share `between` the careful bound (0) and what EC2 states (1),
    drawn for each type and AMI. Else `overhead_percent` of what EC2 states is missing.
    """

    instance_type: str = "*"
    ami: str = "*"
    overhead_percent: float = 4.0
    between: tuple[float, float] | None = None
    memory: str = ""

    def applies(self, instance_type: str, ami: str) -> bool:
        """True if this rule covers the type on the AMI."""
        return fnmatchcase(instance_type, self.instance_type) and fnmatchcase(ami, self.ami)


class PodGroup(ScenarioPart, frozen=True):
    """Pods that are alike; `spec` is merged into each pod's spec, `max_unavailable` makes a PodDisruptionBudget.

    A group of the scenario is a ReplicaSet whose number follows waves and rhythms. One of a step is `count` pods
    `name-0` … `name-<count-1>`; with `replicas` they belong to a ReplicaSet, which replaces each that is evicted.
    """

    name: str
    cpu: str = "500m"
    memory: str = "1Gi"
    count: int = 1
    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    requests: dict[str, str] = {}
    replicas: bool = False
    max_unavailable: int | None = None


class Wave(ScenarioPart, frozen=True):
    """From minute `at` on, a group of a cluster (empty: of all) has so many replicas."""

    group: str
    replicas: int
    at: float = 0.0
    cluster: str = ""


class Rhythm(ScenarioPart, frozen=True):
    """A group whose replicas follow the day, every `step_minutes`: a workload's trace as a formula.

    At hour h they are `low + (high - low) · max(0, sin(π·(h - peak_hour + 6) / 12))`, on the sixth and seventh day of a
    week `weekend` times the rise, and by chance up to the share `noise` more or less.
    """

    group: str
    low: int
    high: int
    peak_hour: float = 13.0
    weekend: float = 1.0
    noise: float = 0.0
    step_minutes: float = 15.0


class ScenarioRequest(ScenarioPart, frozen=True):
    """A ProvisioningRequest for `count` pods of a group, made at minute `at`, and what its client does with it."""

    name: str
    group: str
    count: int
    at: float = 0.0
    is_check: bool = msgspec.field(default=False, name="check")
    """It asks for capacity that exists; otherwise for capacity that is launched as a whole."""
    valid_minutes: float = 0.0
    """Parameter ValidUntilSeconds, in minutes; 0 without it."""
    consumed_after: float = 0.0
    """Minutes from the answer until the pods come; -1: they never do."""
    runs: float = 8.0
    """Minutes for which the pods run. Then the client deletes them, and the request."""
    deleted_after: float = 0.0
    """Minutes after which the client deletes the request, whatever became of it; 0: it does not."""
    attempts: int = 3
    """Where a request has failed or its capacity is lost, the client makes another one, so many in all."""


class Outage(ScenarioPart, frozen=True):
    """From now on EC2 has no capacity for these offerings (globs); `over` ends it."""

    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"
    over: bool = False


class Interruption(ScenarioPart, frozen=True):
    """An event of EC2 for the instances of the first `nodes` nodes, by name, that pods of a group run on.

    It is the spot interruption warning or the rebalance recommendation. `shiplap lab dev` lets an instance that spot
    takes back go on running: what matters is that it is empty in time.
    """

    pods: str
    kind: InterruptionKind = "spot"
    nodes: int = 1


class Expectation(ScenarioPart, frozen=True):
    """Something the step must bring about; only the fields that are written are checked.

    `pods` names the group looked at: all its pods must be bound, unless `unschedulable` is given: then none may be, and
    the reason told to the user must contain that text. `instance_types` are globs every node of these pods must match.
    `nodes` counts the nodes they run on; `launches`, `misses` and `ended` instances count for the whole cluster since
    the scenario began, `running` are its instances that live now.
    """

    name: str
    pods: str = ""
    node_pool: str = ""
    tier: int | None = None
    instance_types: tuple[str, ...] = ()
    amis: tuple[str, ...] = ()
    nodes: int | None = None
    pod_capacity: int | None = None
    unschedulable: str = ""
    held_back: bool = False
    launches: int | None = None
    misses: int | None = None
    ended: int | None = None
    running: int | None = None
    learned: dict[str, str] = {}
    untouched: tuple[str, ...] = ()


class ScenarioStep(ScenarioPart, frozen=True):
    """One move, done in this order: the world changes, objects and pods appear, things settle, expectations are met.

    `delete` takes pods away for good, whoever owns them: globs of their `namespace/name`. While a step with `disrupt`
    settles, the disrupt function looks every few seconds rather than every minute.
    """

    say: str
    cluster: str
    outages: tuple[Outage, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    memory: tuple[NodeMemoryRule, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    delete: tuple[str, ...] = ()
    pods: tuple[PodGroup, ...] = ()
    settle: bool = True
    disrupt: bool = False
    expect: tuple[Expectation, ...] = ()


class Scenario(ScenarioPart, frozen=True):
    """A play. `chaos` faults are drawn from the seed within the first `chaos_minutes`, of `chaos_kinds`; with
    `chaos_hours` they begin within so many hours. It begins at `begins`, in UTC, if that is given.

    Each of the `installs` serves all clusters, with tables and functions of its own. `placement` is the clusters'
    setting of that name, or `any`: drawn from the seed; `spot_risk` is the mode of their `spotRisk`. In a share
    `watched` of all seeds the watch function runs and keeps snapshots; in the others it is imitated. `images` are AMIs
    beside those that EC2 publishes.
    When the last fault is over, all has to be well within `settle_minutes`; steps together may take `time_limit_s`. A
    pod may get at most `most_nodes_per_pod` nodes because it waits, and one more for each that was taken away from it;
    as many from commands that were given up, beside the one that moves it. No pod may wait longer than
    `patience_minutes`; without them (0) they may until all is well. `devices` are what device plugins report on each
    node some time after it is Ready. `sleep` is that of every cluster, a
    `ScenarioSleep`, and `gangs` the mode of their gangs. A client makes `provisioning_requests` in each cluster. A
    campaign fails if one of the `constraints` hardly ever keeps a pod off a node. `ceilings` in dollars are those of
    the account, which all clusters share.
    `reserved_instances`, by type, are regional Reserved Instances of the account that all clusters count on, and
    `savings_plans` its Savings Plans; where both are written, a seed has either or both.
    `live_manifests`: the manifests are objects of the clusters, as with `manifests: cluster`.
    `undisturbed`: no fault keeps functions from their work, so that each step follows at once, and all is told.
    """

    about: str
    api_version: str = "simulation.shiplap.dev/v1"
    kind: str = KIND
    clusters: tuple[ScenarioCluster, ...] = (ScenarioCluster("demo"),)
    installs: tuple[str, ...] = ("shiplap",)
    images: tuple[ScenarioImage, ...] = ()
    memory: tuple[NodeMemoryRule, ...] = (NodeMemoryRule(between=(0.2, 0.6)),)
    groups: tuple[PodGroup, ...] = ()
    waves: tuple[Wave, ...] = ()
    rhythms: tuple[Rhythm, ...] = ()
    faults: tuple[Fault, ...] = ()
    chaos: int = 0
    chaos_minutes: float = 20.0
    chaos_hours: float = 0.0
    begins: datetime | None = None
    chaos_kinds: tuple[str, ...] = ()
    devices: dict[str, int] = {}
    constraints: tuple[Constraint, ...] = ()
    steps: tuple[ScenarioStep, ...] = ()
    time_limit_s: int = 300
    hours: float = 0.5
    settle_minutes: float = 75.0
    most_nodes_per_pod: int = 3
    patience_minutes: float = 0.0
    placement: Literal["none", "nominate", "bind", "any"] = "nominate"
    spot_risk: Literal["off", "observe", "prefer"] = "off"
    watched: float = 0.0
    sleep: dict[str, Any] | None = None
    gangs: Literal["off", "whole"] = "off"
    provisioning_requests: tuple[ScenarioRequest, ...] = ()
    ceilings: tuple[dict[str, Any], ...] = ()
    reserved_instances: dict[str, int] = {}
    savings_plans: tuple[ScenarioSavingsPlan, ...] = ()
    undisturbed: bool = False
    live_manifests: bool = False

    def refuse(self, player: str, **unplayable: str) -> None:
        """Raise InvalidInput if the scenario says something of a field that a player cannot play.

        Args:
            player: the command.
            unplayable: by field, why not, and what can.
        """
        for field, reason in unplayable.items():
            if getattr(self, field) != getattr(_DEFAULT, field):
                raise InvalidInput("scenario", f"{player} cannot play `{_YAML_NAMES[field]}`: {reason}")

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """In the order of the scenario."""
        return tuple(cluster.name for cluster in self.clusters)


_DEFAULT = Scenario("")
_YAML_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(Scenario)}


class Play(msgspec.Struct, frozen=True):
    """A scenario with the manifests of each cluster, typed and as they were written."""

    name: str
    scenario: Scenario
    manifests: Mapping[str, Manifests] = {}
    written: Mapping[str, tuple[dict[str, Any], ...]] = {}


def names() -> tuple[str, ...]:
    """The bundled scenarios, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.iterdir() if path.suffix == ".yaml" or (path / FILE).is_file()))


def load(name: str) -> Play:
    """A bundled scenario by name, or any by the path of its file or of its folder.

    Raises:
        InvalidInput: there is none, or it cannot be read.
        InvalidManifests: what is wrong with its NodePools and EC2NodeClasses.
    """
    path = _file_of(name)
    documents = read_file(path)
    plays = [document for document in documents if document.data.get("kind", KIND) == KIND]
    if len(plays) != 1:
        raise InvalidInput(str(path), f"expected one document of kind {KIND}, found {len(plays)}")
    try:
        scenario = msgspec.convert(plays[0].data, Scenario)
        for _, module in parts("shiplap_lab", "scenario"):
            module.check(scenario)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error), document=KIND) from error
    _check_names(scenario, path)
    shared = [document for document in documents if document is not plays[0]]
    folders = dict.fromkeys(cluster.manifests for cluster in scenario.clusters)
    read = {folder: read_documents(path.parent / folder) if folder else shared for folder in folders}
    typed = {folder: _typed(found) for folder, found in read.items()}
    return Play(
        path.parent.name if path.name == FILE else path.stem,
        scenario,
        {cluster.name: typed[cluster.manifests] for cluster in scenario.clusters},
        {cluster.name: tuple(document.data for document in read[cluster.manifests]) for cluster in scenario.clusters},
    )


def _file_of(name: str) -> Path:
    places = (FOLDER / f"{name}.yaml", FOLDER / name / FILE) if name in names() else (Path(name), Path(name) / FILE)
    for path in places:
        if path.is_file():
            return path
    reason = f"there is no file, no folder with a {FILE} and no scenario {name!r}; bundled are {', '.join(names())}"
    raise InvalidInput("scenario", reason)


def _typed(documents: Sequence[Document]) -> Manifests:
    report = check_documents(documents)
    if report.problems:
        raise InvalidManifests(report.problems)
    return report.manifests


def _check_names(scenario: Scenario, path: Path) -> None:
    """Every cluster and group that is named exists, and whatever faults need."""
    for kind in (*scenario.chaos_kinds, *(fault.kind for fault in scenario.faults)):
        if kind not in KINDS:
            reason = f"there is no fault {kind!r}; known are {', '.join(sorted(KINDS))}"
            raise InvalidInput(str(path), reason, document=KIND, field="faults")
        if KINDS[kind].is_of_manifests and not scenario.live_manifests:
            raise InvalidInput(str(path), f"{kind} needs liveManifests: true", document=KIND, field="faults")
    groups = {group.name for group in scenario.groups}
    named = [("waves", wave.group, wave.cluster) for wave in scenario.waves]
    named += [("rhythms", rhythm.group, "") for rhythm in scenario.rhythms]
    named += [("provisioningRequests", request.group, "") for request in scenario.provisioning_requests]
    for field, group, _ in named:
        if group not in groups:
            raise InvalidInput(str(path), f"there is no group {group!r}", document=KIND, field=field)
    named += [(f"steps[{index}]", "", step.cluster) for index, step in enumerate(scenario.steps)]
    known = scenario.cluster_names
    for field, _, cluster in named:
        if cluster and cluster not in known:
            reason = f"there is no cluster {cluster!r}; known are {', '.join(known)}"
            raise InvalidInput(str(path), reason, document=KIND, field=field)


_MIB = 2**20


def node_memory(rules: Sequence[NodeMemoryRule], kind: Ec2InstanceType, ami: str, seed: int = 0) -> int:
    """Bytes that a kernel sees on a type that boots an AMI, by the last rule that covers both.

    Four per cent of what EC2 states is missing where no rule applies, as on most types in the field.
    """
    rule = [rule for rule in (NodeMemoryRule(), *rules) if rule.applies(kind.instance_type, ami)][-1]
    nominal = kind.memory_info.size_in_mi_b * _MIB
    if rule.memory:
        return parse_amount("memory", rule.memory)
    if rule.between is not None:
        least = max(0, nominal * 7 // 8 - 128 * _MIB)
        chance = Random(f"{seed}:memory:{ami}:{kind.instance_type}")  # noqa: S311 - repeatable chance
        return int(least + (nominal - least) * chance.uniform(*rule.between))
    return int(nominal * (1 - rule.overhead_percent / 100)) // _MIB * _MIB
