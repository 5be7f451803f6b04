"""Promise 2: a nodeclaim never misses twice, whatever nodes really have and whoever decides at the same time.

Two clusters of one account share what is learned. True memory is drawn per instance type from the envelope in which the
promise holds: at least the careful bound, at most what EC2 states. Schedulers and observers run into each other at any
effect, and die at any effect. The sweep runs every minute, as it does in an install; all other messages may be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import PROBE_UNMEASURED_TYPES
from shiplap_lab.fakes.faults import Crash
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage
from tests.thoroughness import draws

POOLS = (family_pool("any", ("m6i", "r6i"), sizes=("large", "xlarge")),)
TYPES = ("m6i.large", "m6i.xlarge", "r6i.large", "r6i.xlarge")
EFFECTS = (
    "state.read",
    "state.commit",
    "state.advance",
    "state.mark_missed",
    "cluster.view",
    "cluster.patch_node",
    "capacity.acquire_pilot",
    "capacity.release_pilot",
    "capacity.learned",
    "capacity.pilots",
    "capacity.observe",
    "compute.launch",
)
ACTS = ("schedule", "attend", "join", "joined and bound", "crash")

clusters = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("pods"), clusters, st.integers(1, 2), st.sampled_from(TYPES), st.floats(0.0, 1.0)),
    st.tuples(
        st.just("interrupt"),
        st.sampled_from(("before", "after")),
        st.sampled_from(EFFECTS),
        st.integers(1, 3),
        st.lists(st.tuples(st.sampled_from(ACTS), clusters), min_size=1, max_size=4),
    ),
    st.tuples(st.sampled_from(("schedule", "schedule", "attend", "join", "bind")), clusters),
    st.tuples(st.just("minute")),
)


def _probing(item: NodePool) -> NodePool:
    metadata = msgspec.structs.replace(item.metadata, annotations={PROBE_UNMEASURED_TYPES: "on"})
    return msgspec.structs.replace(item, metadata=metadata)


class Account:
    """Two clusters, and what can happen to them. `fraction_of` places a type's memory between careful and stated."""

    def __init__(self, fraction_of: dict[str, float], *, probing: bool = False) -> None:
        def memory(kind: InstanceType, nominal: int) -> int:
            least = kind.careful[MEMORY]
            return int(least + (nominal - least) * fraction_of.get(kind.name, 1.0))

        pools = tuple(map(_probing, POOLS)) if probing else POOLS
        first = Stage(pools, true_memory=memory)
        self.stages = (first, Stage(pools, true_memory=memory, beside=first))
        self._batches = 0

    def take(self, step: tuple[object, ...]) -> None:
        kind, *arguments = step
        getattr(self, str(kind))(*arguments)

    def pods(self, cluster: int, count: int, near: str, where: float) -> None:
        """Pods as large as a type's allocatable somewhere between the careful bound and the estimate."""
        kind = self.stages[cluster].types[near]
        least, most = kind.careful_allocatable[MEMORY], kind.allocatable[MEMORY]
        self._batches += 1
        size = str(int(least + (most - least) * where))
        self.stages[cluster].add_pods(count, cpu="500m", memory=size, prefix=f"p{self._batches}")

    def interrupt(self, when: str, effect: str, nth: int, acts: list[tuple[str, int]]) -> None:
        """Have others act, or the one at work die, when an effect is passed."""

        def happen() -> None:
            for act, cluster in acts:
                self._acts(cluster)[act]()

        self.stages[0].faults.on(when, effect, happen, nth=nth)  # type: ignore[arg-type]

    def _acts(self, cluster: int) -> dict[str, Callable[[], object]]:
        stage = self.stages[cluster]

        def crash() -> None:
            raise Crash

        def joined_and_bound() -> None:
            stage.join()
            stage.attend()
            stage.bind()

        return {
            "schedule": stage.schedule,
            "attend": stage.attend,
            "join": stage.join,
            "joined and bound": joined_and_bound,
            "crash": crash,
        }

    def schedule(self, cluster: int) -> None:
        self.stages[cluster].dies(self.stages[cluster].schedule)

    def attend(self, cluster: int) -> None:
        self.stages[cluster].dies(self.stages[cluster].attend)

    def join(self, cluster: int) -> None:
        self.stages[cluster].join()

    def bind(self, cluster: int) -> None:
        self.stages[cluster].bind()

    def minute(self) -> None:
        self.stages[0].clock.advance(60)
        for stage in self.stages:
            stage.dies(stage.sweep)
            due = stage.due()
            stage.dies(lambda stage=stage, due=due: stage.attend(*due))  # type: ignore[misc]

    def misses(self) -> tuple[Counter[str], Counter[str]]:
        """Nodes smaller than what their claims relied on: how many per instance type, and per pod."""
        by_type: Counter[str] = Counter()
        by_pod: Counter[str] = Counter()
        for stage in self.stages:
            joined = {node.spec.provider_id for node in stage.cluster.nodes()}
            for instance in stage.compute.launches:
                claim, kind = stage.launched[instance.id], stage.types[instance.instance_type]
                real = stage.true_capacity(kind.name)[MEMORY] - kind.overhead[MEMORY]
                if instance.provider_id in joined and claim.plan.requests[MEMORY] > real:
                    by_type[kind.name] += 1
                    by_pod.update(f"{stage.name}/{pod.uid}" for pod in claim.plan.pods)
        return by_type, by_pod


@settings(max_examples=draws(200), derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fraction_of=st.fixed_dictionaries(dict.fromkeys(TYPES, st.floats(0.0, 0.6))),
    script=st.lists(steps, min_size=6, max_size=30),
    probing=st.booleans(),
)
def test_no_type_and_no_pod_misses_twice(
    fraction_of: dict[str, float], script: list[tuple[object, ...]], probing: bool
) -> None:
    account = Account(fraction_of, probing=probing)
    for step in script:
        account.take(step)
    for _ in range(6):  # what is left to do is done
        account.minute()
        for cluster in (0, 1):
            account.join(cluster)
            account.attend(cluster)
            account.bind(cluster)
    by_type, by_pod = account.misses()
    assert set(by_type.values()) <= {1}, by_type
    assert set(by_pod.values()) <= {1}, by_pod


def test_the_script_language_can_tell_of_a_miss() -> None:
    account = Account(dict.fromkeys(TYPES, 0.0))
    for step in (("pods", 0, 1, "m6i.large", 0.9), ("schedule", 0), ("join", 0), ("attend", 0)):
        account.take(step)
    by_type, by_pod = account.misses()
    assert list(by_type.values()) == [1]
    assert list(by_pod.values()) == [1]


def test_a_probe_is_wrong_once() -> None:
    """Pods that only what EC2 states could hold: one node is launched, its lesson keeps the next from being."""
    account = Account(dict.fromkeys(TYPES, 0.5), probing=True)
    stage = account.stages[0]
    size = str(stage.types["m6i.large"].allocatable[MEMORY] + 200 * 2**20)
    only = {"node.kubernetes.io/instance-type": "m6i.large"}
    stage.add_pods(2, cpu="500m", memory=size, prefix="large", selector=only)
    for _ in range(4):
        account.minute()
        account.schedule(0)
        account.join(0)
        account.attend(0)
    assert [instance.instance_type for instance in stage.compute.launches] == ["m6i.large"]
    by_type, _ = account.misses()
    assert by_type == {"m6i.large": 1}
