"""The queue of the played kube-scheduler: the order of a full sort at each step, without sorting."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap_lab.cluster_simulator.kube_scheduler import PodInfo, SchedulingQueue
from tests.builders.pods import pod


def needs(name: str, cpu: str = "1", *, priority: int = 0, nominated: str = "", created: str = "") -> PodInfo:
    item = pod(name, cpu=cpu)
    return PodInfo.of(
        replace(
            item,
            metadata=replace(item.metadata, creation_timestamp=created),
            spec=replace(item.spec, priority=priority),
            status=replace(item.status, nominated_node_name=nominated),
        )
    )


def taken(waiting: SchedulingQueue, most: int = 1000) -> list[str]:
    with closing(waiting.in_order()) as queue:
        return [key for key, _ in islice(queue, most)]


def test_the_most_important_then_the_untried_then_the_oldest() -> None:
    waiting = SchedulingQueue()
    waiting.put("tried", needs("tried", created="1"), 5.0)
    waiting.put("young", needs("young", "2", created="2"), 0.0)
    waiting.put("old", needs("old", created="1"), 0.0)
    waiting.put("important", needs("important", priority=9, created="3"), 7.0)
    waiting.put("nominated", needs("nominated", nominated="n", created="1"), 0.0)
    assert taken(waiting) == ["important", "nominated", "old", "young", "tried"]
    assert taken(waiting, 2) == ["important", "nominated"]
    assert taken(waiting) == ["important", "nominated", "old", "young", "tried"]


def test_who_is_dropped_or_put_elsewhere_is_there_no_more_or_once() -> None:
    waiting = SchedulingQueue()
    for name in ("a", "b", "c"):
        waiting.put(name, needs(name), 0.0)
    waiting.drop("b")
    waiting.put("a", needs("a", nominated="n"), 3.0)
    assert taken(waiting) == ["c", "a"]
    waiting.put("b", needs("b"), 0.0)
    assert taken(waiting) == ["b", "c", "a"]


def test_who_is_put_while_pods_are_taken_is_not_taken_twice() -> None:
    waiting = SchedulingQueue()
    for name in ("a", "b"):
        waiting.put(name, needs(name), 0.0)
    seen = []
    with closing(waiting.in_order()) as queue:
        for key, item in queue:
            seen.append(key)
            waiting.put(key, item, 4.0)
    assert seen == ["a", "b"]
    assert taken(waiting) == ["a", "b"]


def test_only_the_tried_of_a_hopeless_shape_are_passed_over() -> None:
    waiting = SchedulingQueue()
    for number in range(4):
        waiting.put(f"new{number}", needs(f"new{number}"), 0.0)
        waiting.put(f"tried{number}", needs(f"tried{number}"), 1.0)
    waiting.put("other", needs("other", "2"), 2.0)
    seen = []
    with closing(waiting.in_order()) as queue:
        for key, item in queue:
            seen.append(key)
            if key.startswith("tried"):
                waiting.pass_over(item)
    assert seen == ["new0", "new1", "new2", "new3", "tried0", "other"]
    assert len(taken(waiting)) == 9


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("12"), st.integers(0, 2), st.integers(0, 3), st.booleans()),
        max_size=40,
    )
)
def test_it_is_the_order_of_a_sort(steps: list[tuple[int, str, int, int, bool]]) -> None:
    waiting = SchedulingQueue()
    there: dict[str, tuple[int, float, str, str]] = {}
    for number, cpu, priority, tried, stays in steps:
        key = f"p{number}"
        if stays:
            waiting.put(key, needs(key, cpu, priority=priority, created=cpu), float(tried))
            there[key] = (-priority, float(tried), cpu, key)
        else:
            waiting.drop(key)
            there.pop(key, None)
        assert taken(waiting) == sorted(there, key=there.__getitem__)
