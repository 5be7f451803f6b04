"""What a scenario file says: one YAML file with a Scenario and the NodePools and EC2NodeClasses it is played with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.documents import read_file
from shiplap.manifests.files.loading import check_documents

FOLDER = Path(__file__).parent / "scenarios"
KIND = "Scenario"

FaultKind = Literal[
    "lose",
    "double",
    "delay",
    "crash",
    "refuse",
    "answer-lost",
    "slow",
    "conflict",
    "api-down",
    "no-capacity",
    "no-answer",
    "describe-lag",
    "interrupt",
    "terminate",
    "never-join",
    "late-join",
    "taint",
    "stray",
    "quota",
    "index-lag",
    "upgrade",
]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything in a Scenario."""


class Fault(_Part, frozen=True):
    """Something that goes wrong from `at` on, for so many `minutes`; both in minutes of virtual time.

    What `target` and `amount` mean depends on the kind:

    lose, double: messages of the queues `target` (glob), each with probability `amount`.
    delay: the same, by `amount` seconds at most.
    crash: the next invocation of function `target` dies at its effect number `amount`.
    refuse: effects `target` (glob) fail with probability `amount` before they happen.
    answer-lost: the same after they have happened.
    slow: effects `target` take `amount` seconds longer.
    conflict: somebody else has just written to the Node, with probability `amount`.
    api-down: the Kubernetes API does not answer, and nothing changes in the cluster.
    no-capacity: EC2 has only `amount` instances left of each offering `target` (glob of type/zone/capacity type).
    no-answer: CreateFleet launches, and its answer is lost, with probability `amount`.
    describe-lag: describing shows instances `amount` seconds late.
    interrupt: spot takes back the share `amount` of its instances, with the warning of two minutes.
    terminate: `amount` instances end without a warning.
    never-join, late-join, taint: instances launched meanwhile never join with probability `amount`; join `amount`
    seconds late; are tainted by somebody else as soon as they join.
    stray: `amount` instances with the tags of `target`, a NodePool (`*`: the first), appear that no claim has ever had.
    quota: EC2 lets the account have only `amount` more instances of the capacity type `target`.
    index-lag: the index of claims by instance shows what was written `amount` seconds ago.
    upgrade: the alias is moved: all functions that run die at once, and for so long the version before runs, which does
    not know what is new in records and messages; when it is over the alias is moved again.
    """

    kind: FaultKind
    at: float = 0.0
    minutes: float = 0.0
    target: str = "*"
    amount: float = 1.0


class ReplicaGroup(_Part, frozen=True):
    """Pods that a ReplicaSet keeps. `max_unavailable` makes a PodDisruptionBudget; `spec` is merged into each pod's."""

    name: str
    cpu: str = "500m"
    memory: str = "1Gi"
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    max_unavailable: int | None = None


class Wave(_Part, frozen=True):
    """From minute `at` on, a group of a cluster (empty: of all) has so many replicas."""

    group: str
    replicas: int
    at: float = 0.0
    cluster: str = ""


class Rhythm(_Part, frozen=True):
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


class Scenario(_Part, frozen=True):
    """A play. `chaos` faults are drawn from the seed within the first `chaos_minutes`, of `chaos_kinds`.

    Each of the `installs` serves all clusters, with tables and functions of its own. `placement` is the clusters'
    setting of that name, or `any`: drawn from the seed.
    Memory that nodes really have lies between the careful bound (0) and what EC2 states (1), per type, drawn between
    the two of `memory`. When the last fault is over, all has to be well within `settle_minutes`. A pod may get at most
    `most_nodes_per_pod` nodes because it waits, and one more for each that was taken away from it; as many from
    commands that were given up, beside the one that moves it. No pod may wait longer than `patience_minutes`; without
    them (0) they may until all is well.
    """

    about: str
    api_version: str = "simulation.shiplap.dev/v1"
    kind: str = KIND
    clusters: tuple[str, ...] = ("demo",)
    installs: tuple[str, ...] = ("shiplap",)
    groups: tuple[ReplicaGroup, ...] = ()
    waves: tuple[Wave, ...] = ()
    rhythms: tuple[Rhythm, ...] = ()
    faults: tuple[Fault, ...] = ()
    chaos: int = 0
    chaos_minutes: float = 20.0
    chaos_kinds: tuple[FaultKind, ...] = ()
    hours: float = 0.5
    settle_minutes: float = 75.0
    memory: tuple[float, float] = (0.2, 0.6)
    most_nodes_per_pod: int = 3
    patience_minutes: float = 0.0
    placement: Literal["none", "nominate", "bind", "any"] = "nominate"


class Play(msgspec.Struct, frozen=True):
    """A scenario with its manifests."""

    name: str
    scenario: Scenario
    manifests: Manifests


def names() -> tuple[str, ...]:
    """The bundled scenarios, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load(name: str) -> Play:
    """A bundled scenario by name, or any by the path of its file.

    Raises:
        InvalidInput: there is none, or it cannot be read.
        InvalidManifests: what is wrong with its NodePools and EC2NodeClasses.
    """
    path = FOLDER / f"{name}.yaml"
    if name not in names():
        path = Path(name)
        if not path.is_file():
            raise InvalidInput(
                "scenario", f"there is no file and no scenario {name!r}; bundled are {', '.join(names())}"
            )
    documents = read_file(path)
    plays = [document for document in documents if document.data.get("kind") == KIND]
    if len(plays) != 1:
        raise InvalidInput(str(path), f"expected one document of kind {KIND}, found {len(plays)}")
    try:
        scenario = msgspec.convert(plays[0].data, Scenario)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error), document=KIND) from error
    report = check_documents([document for document in documents if document is not plays[0]])
    if report.problems:
        raise InvalidManifests(report.problems)
    known = {group.name for group in scenario.groups}
    for field, named in (("waves", scenario.waves), ("rhythms", scenario.rhythms)):
        for item in named:
            if item.group not in known:
                raise InvalidInput(str(path), f"there is no group {item.group!r}", document=KIND, field=field)
    return Play(path.stem, scenario, report.manifests)
