"""Reads from annotations whether a pod moves by a restart of its Deployment, and what follows if that fails."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shiplap.kubernetes.labels import ROLLOUT, ROLLOUT_WITHIN
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.shiplap_annotations import node_pool_problem
from shiplap.manifests.times import go_seconds

EVICT, STAY = "evict", "stay"


class RolloutWish(msgspec.Struct, frozen=True):
    """The wish of a pod that moves by a restart.

    `evicts` says that the pod is evicted if there is no restart within `within_s` seconds; otherwise it stays, and its
    node waits. `problem` says what is wrong with an annotation; then the pod stays.
    """

    evicts: bool
    within_s: float
    problem: str = ""


def wish_of(pod: Pod, of_pool: Mapping[str, str], usual_s: float) -> RolloutWish | None:
    """Return the wish of a pod by its own annotations, else those of its NodePool; None if it has none."""
    written = {
        key: value
        for source in (of_pool, pod.metadata.annotations)
        for key in (ROLLOUT, ROLLOUT_WITHIN)
        if (value := source.get(key)) is not None
    }
    word = written.get(ROLLOUT, "never")
    problems = [
        f"annotation {key}: {wrong}" for key, text in written.items() if (wrong := node_pool_problem(key, text))
    ]
    if problems:
        return RolloutWish(evicts=False, within_s=usual_s, problem=problems[0])
    if word not in (EVICT, STAY):
        return None
    return RolloutWish(word == EVICT, go_seconds(written[ROLLOUT_WITHIN]) if ROLLOUT_WITHIN in written else usual_s)
