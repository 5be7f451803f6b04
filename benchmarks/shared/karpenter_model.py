"""A model of how Karpenter packs a batch of pods onto new nodes, and of plain first fit, pod by pod.

Only the decisions are modelled, for one NodePool and no existing nodes: pods by cpu, then memory, largest first; open
claims tried in order of fewest pods (or in the order they were opened: plain first fit); a claim keeps every type that
still holds its pods; a spread pins the claim to the allowed zone with the lowest count, and only claims with one zone
count; in the end the cheapest type that holds the claim is bought. Every type counts as sold in every zone, which
favours the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.shared.karpenter_workload import LABELS, DrawnPod
from shiplap.scheduling.model.resources import Bools, Floats, Ints, pareto_front
from shiplap.scheduling.search.bin_packing import BinPackingProblem

_MIB = 2**20


class Model:
    """One run; `used` [claims, resources] are the loads of the claims that were opened."""

    def __init__(self, problem: BinPackingProblem, pods: int, zones: int, *, fewest_first: bool) -> None:
        can = np.isfinite(problem.price)
        self.net, self.price = problem.net[can], problem.price[can]
        self._front = pareto_front(self.net)
        self._fewest_first = fewest_first
        self._used: Ints = np.zeros((pods, 3), np.int64)
        self._zones: Bools = np.ones((pods, zones), np.bool_)
        self._labelled: Ints = np.zeros((pods, len(LABELS)), np.int64)
        self._alone: Bools = np.zeros(pods, np.bool_)
        self._pods: Ints = np.zeros(pods, np.int64)
        self._rank: Floats = np.zeros(pods)
        self._claims = 0
        self._moves = 0
        self._spread: Ints = np.zeros((len(LABELS), zones), np.int64)
        self._followed: Ints = np.zeros((len(LABELS), zones), np.int64)

    def run(self, drawn: Sequence[DrawnPod]) -> Ints:
        """Place all pods, those that nobody takes yet once more; returns the loads of the claims."""
        queue = sorted(drawn, key=lambda pod: (-pod.cpu_m, -pod.memory_mi))
        while queue:
            left = [pod for pod in queue if not self._place(pod)]
            assert len(left) < len(queue), f"{len(left)} pods fit nowhere"
            queue = left
        return self._used[: self._claims]

    def hourly(self) -> float:
        """USD per hour of the cheapest types that hold the claims."""
        order = np.argsort(self.price, kind="stable")
        holds = (self.net[order][None, :, :] >= self._used[: self._claims, None, :]).all(axis=2)
        return float(self.price[order][holds.argmax(axis=1)].sum())

    def _place(self, pod: DrawnPod) -> bool:
        size = np.array((pod.cpu_m, pod.memory_mi * _MIB, 1), np.int64)
        allowed = self._allowed_zones(pod)
        place = self._choose(pod, size, allowed)
        if place is None:
            if not (self._front >= size).all(axis=1).any() or not allowed.any():
                return False
            place = self._claims
            self._claims += 1
            self._rank[place] = place
        self._put(pod, place, size, allowed)
        return True

    def _choose(self, pod: DrawnPod, size: Ints, allowed: Bools) -> int | None:
        number = self._claims
        after = self._used[:number] + size
        can = np.zeros(number, np.bool_)
        for row in self._front:
            can |= (after <= row).all(axis=1)
        can &= (self._zones[:number] & allowed).any(axis=1)
        if pod.kind == "x":
            can &= ~self._alone[:number]
        if pod.kind == "h":
            there = self._labelled[:number, LABELS.index(pod.selector)]
            can &= there + (pod.label == pod.selector) <= 1
        places = np.flatnonzero(can)
        if not len(places):
            return None
        if not self._fewest_first:
            return int(places[0])
        fewest = places[self._pods[places] == self._pods[places].min()]
        return int(fewest[int(np.argmin(self._rank[fewest]))])

    def _allowed_zones(self, pod: DrawnPod) -> Bools:
        zones = self._spread.shape[1]
        if pod.kind == "z":
            counts = self._spread[LABELS.index(pod.selector)]
            after = counts + (pod.label == pod.selector)
            allowed: Bools = after - counts.min() <= 1
            return allowed
        if pod.kind == "a" and self._followed[LABELS.index(pod.label)].any():
            followed: Bools = self._followed[LABELS.index(pod.label)] > 0
            return followed
        return np.ones(zones, np.bool_)

    def _put(self, pod: DrawnPod, place: int, size: Ints, allowed: Bools) -> None:
        here = self._zones[place] & allowed
        if pod.kind == "z":
            counts = np.where(here, self._spread[LABELS.index(pod.selector)], np.iinfo(np.int64).max)
            here = np.arange(len(here)) == int(np.argmin(counts))
        elif pod.kind == "a":
            here = np.arange(len(here)) == int(np.argmax(here))
        self._zones[place] = here
        self._used[place] += size
        self._pods[place] += 1
        # Sorting by number of pods is stable: who got one more comes before those who had as many already.
        self._moves += 1
        if self._pods[place] > 1:
            self._rank[place] = -self._moves
        settled = here.sum() == 1
        if pod.kind == "x":
            self._alone[place] = True
        elif pod.kind == "a":
            self._followed[LABELS.index(pod.label), here] += settled
        elif pod.label:
            self._labelled[place, LABELS.index(pod.label)] += 1
            self._spread[LABELS.index(pod.label), here] += settled
