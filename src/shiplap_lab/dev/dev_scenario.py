"""The format of a scenario of `shiplap dev`.

A scenario is a folder under `scenarios`: `scenario.yaml` (this module's `DevScenario`) and folders of manifests. It
describes clusters, the real memory of nodes, and steps. It names no timing, so that it can be played in real time on
the emulator and in virtual time on fakes.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import read_file

INTERRUPTIONS = ("spot", "rebalance")
"""Events of EC2: the spot interruption warning and the rebalance recommendation."""

FOLDER = Path(__file__).parent / "scenarios"


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything in scenario.yaml."""


class NodeMemoryRule(_Part, frozen=True):
    """The memory that nodes of some types (globs) on some AMIs (globs) really report; the last matching rule counts.

    `memory` is the capacity as a quantity, else `overhead_percent` of EC2's figure is missing from it.
    """

    instance_type: str = "*"
    ami: str = "*"
    overhead_percent: float = 4.0
    memory: str = ""

    def applies(self, instance_type: str, ami: str) -> bool:
        """Whether this rule speaks about the type on the AMI."""
        return fnmatchcase(instance_type, self.instance_type) and fnmatchcase(ami, self.ami)


class ScenarioImage(_Part, frozen=True):
    """An AMI of the played world, found through `ssm_parameters`. `architecture` x86_64 or arm64."""

    id: str
    name: str
    created: str
    architecture: str = "x86_64"
    ssm_parameters: tuple[str, ...] = ()


class ScenarioCluster(_Part, frozen=True):
    """One cluster: its manifests folder, settings that differ from the defaults, and objects it starts with."""

    name: str
    manifests: str
    kubernetes_version: str = "1.34"
    vm_memory_overhead_percent: float = 0.075
    prefix_delegation: str = "auto"
    reserved_enis: int = msgspec.field(default=0, name="reservedENIs")
    objects: tuple[dict[str, Any], ...] = ()


class PodGroup(_Part, frozen=True):
    """Pods `name-0` … `name-<count-1>`; `spec` is merged into each pod's spec.

    With `replicas` they belong to a ReplicaSet, which makes a new one for each that is evicted.
    """

    name: str
    cpu: str
    memory: str
    count: int = 1
    namespace: str = "default"
    labels: dict[str, str] = {}
    spec: dict[str, Any] = {}
    requests: dict[str, str] = {}
    replicas: bool = False


class Outage(_Part, frozen=True):
    """From now on EC2 has no capacity for these offerings (globs); `over` ends it."""

    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"
    over: bool = False


class Interruption(_Part, frozen=True):
    """An event of EC2 for the instances of the first `nodes` nodes, by name, that pods of a group run on.

    `kind` is one of INTERRUPTIONS. An instance that spot takes back goes on running in the played world: what matters
    is that it is empty in time.
    """

    pods: str
    kind: str = "spot"
    nodes: int = 1


class Expectation(_Part, frozen=True):
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


class ScenarioStep(_Part, frozen=True):
    """One move, done in this order: the world changes, objects and pods appear, things settle, expectations are met.

    `delete` takes pods away for good, whoever owns them: globs of their `namespace/name`. While a step with `disrupt`
    settles, the disrupt function looks every few seconds rather than every minute.
    """

    say: str
    cluster: str
    outages: tuple[Outage, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    truth: tuple[NodeMemoryRule, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    delete: tuple[str, ...] = ()
    pods: tuple[PodGroup, ...] = ()
    settle: bool = True
    disrupt: bool = False
    expect: tuple[Expectation, ...] = ()


class DevScenario(_Part, frozen=True):
    """The whole play; `time_limit_s` bounds it in the played world's time."""

    about: str
    clusters: tuple[ScenarioCluster, ...]
    steps: tuple[ScenarioStep, ...]
    truth: tuple[NodeMemoryRule, ...] = (NodeMemoryRule(),)
    images: tuple[ScenarioImage, ...] = ()
    time_limit_s: int = 300


def names() -> tuple[str, ...]:
    """The bundled scenarios, sorted."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/scenario.yaml")))


def folder_of(name: str) -> Path:
    """The folder of a bundled scenario, or of one the user wrote, given by path.

    Raises:
        InvalidInput: there is none.
    """
    for folder in (FOLDER / name, Path(name)):
        if (folder / "scenario.yaml").is_file():
            return folder
    raise InvalidInput("--scenario", f"no scenario {name!r}; bundled are {', '.join(names())}")


def load(folder: Path) -> DevScenario:
    """Read and check `scenario.yaml`.

    Raises:
        InvalidInput: it cannot be read, has unknown fields, or a step names a cluster that does not exist.
    """
    path = folder / "scenario.yaml"
    documents = read_file(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document, found {len(documents)}")
    try:
        scenario = msgspec.convert(documents[0].data, DevScenario)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error)) from error
    known = {cluster.name for cluster in scenario.clusters}
    for index, step in enumerate(scenario.steps):
        for item in step.interruptions:
            if item.kind not in INTERRUPTIONS:
                reason = f"{item.kind!r} is none of {', '.join(INTERRUPTIONS)}"
                raise InvalidInput(str(path), reason, field=f"steps[{index}].interruptions")
    for index, step in enumerate(scenario.steps):
        if step.cluster not in known:
            raise InvalidInput(
                str(path), f"no cluster {step.cluster!r}; known are {sorted(known)}", field=f"steps[{index}].cluster"
            )
    return scenario
