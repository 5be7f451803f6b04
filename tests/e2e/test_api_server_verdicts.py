"""`shiplap validate` says what a real API server says of manifests, with the CRDs of upstream's newest release.

`make verdicts` asks about 100,000 manifests of a fresh seed and wants every constraint broken and met a hundred times.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.validation.nodepool_rules import transition_problems
from tests.crds import schema_judge
from tests.crds.manifest_generator import ManifestGenerator
from tests.crds.schemas import FILES, Constraint, constraints_of, schema_of
from tests.crds.verdicts import difference_of, is_accepted, typed
from tests.e2e import programs
from tests.e2e.control_plane import ControlPlane
from tests.e2e.dry_runs import Answer, DryRuns
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

pytestmark = pytest.mark.e2e

MANIFESTS = int(os.environ.get("SHIPLAP_VERDICTS", "4000"))
SEED = int(os.environ.get("SHIPLAP_SEED", "1"))
WHOLE_CAMPAIGN = 100_000
LEAST = 100
"""How often a whole campaign breaks and meets each constraint."""


Object = dict[str, Any]


@pytest.fixture(scope="module")
def dry_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DryRuns]:
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("verdicts")
    with ControlPlane(folder, scheduler=False, controllers=(), nodes=False) as plane, DryRuns(plane) as runs:
        yield runs


def test_globs_and_tiers_are_taken_as_they_are(dry_runs: DryRuns) -> None:
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["c7i-flex", "*-flex", "*"]}
    pool = changed(NODE_POOL, "spec.template.spec.requirements", [family])
    answer = dry_runs.create(pool)
    assert answer.accepted, answer.causes
    assert answer.stored["spec"]["template"]["spec"]["requirements"] == [family]
    assert dry_runs.create(EC2_NODE_CLASS).accepted


@pytest.mark.parametrize("kind", FILES)
def test_the_same_verdict(kind: str, dry_runs: DryRuns, capsys: pytest.CaptureFixture[str]) -> None:
    constraints = list(constraints_of(schema_of(kind)))
    tally = Tally(kind)
    generator = ManifestGenerator(kind, SEED)
    of_all = sum(len(list(constraints_of(schema_of(other)))) for other in FILES)
    wanted = MANIFESTS * len(constraints) // of_all + 1
    for start in range(0, wanted, 1000):
        manifests = [generator.next() for _ in range(min(1000, wanted - start))]
        for manifest, answer in zip(manifests, dry_runs.create_all(manifests), strict=True):
            tally.judge(manifest, answer)
    with capsys.disabled():
        sys.stdout.write(f"\n{tally.summary(constraints)}\n")
    assert not tally.unexplained
    assert tally.accepted >= 0.3 * wanted
    if MANIFESTS >= WHOLE_CAMPAIGN:
        assert not tally.rare(constraints)


class Tally:
    """Verdicts on manifests of one kind, and how often each constraint was broken and met by the API server's word."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.asked = self.accepted = 0
        self.differences: Counter[str] = Counter()
        self.unexplained: list[tuple[Object, Answer]] = []
        self._broken: Counter[Constraint] = Counter()
        self._met: Counter[Constraint] = Counter()

    def judge(self, manifest: Object, answer: Answer) -> None:
        self.asked += 1
        self.accepted += answer.accepted
        if is_accepted(manifest) != answer.accepted:
            difference = difference_of(manifest, accepted_there=answer.accepted, kubernetes=programs.minor())
            self.differences[difference] += 1
            if not difference:
                self.unexplained.append((manifest, answer))
        elif answer.accepted:
            assert typed({**manifest, "spec": answer.stored["spec"]}) == typed(manifest), "defaults"
        if not answer.accepted:
            self._broken.update(schema_judge.object_violations(self.kind, manifest))
        elif answer.stored.get("spec") is not None:
            self._met.update(set(schema_judge.met(schema_of(self.kind), answer.stored["spec"])))

    def rare(self, constraints: list[Constraint]) -> list[str]:
        """Constraints that were broken or met too seldom."""
        return [
            f"{constraint}: broken {self._broken[constraint]}, met {self._met[constraint]}"
            for constraint in constraints
            if min(self._broken[constraint], self._met[constraint]) < LEAST
            and "oldSelf" not in constraint.detail
            and constraint.path[-1] != "reasons"
        ]

    def summary(self, constraints: list[Constraint]) -> str:
        agreed = self.asked - self.differences.total()
        told = dict(sorted(self.differences.items()))
        lines = [
            f"{self.kind}: {agreed} of {self.asked} alike, {self.accepted / self.asked:.0%} accepted, "
            f"by a written difference {json.dumps(told)}, seed {SEED}"
        ]
        if MANIFESTS >= WHOLE_CAMPAIGN:
            lines += [f"  {self._broken[one]:6} broken {self._met[one]:6} met  {str(one)[:150]}" for one in constraints]
        return "\n".join(lines)


def test_the_same_verdict_on_what_replaces_a_pool(dry_runs: DryRuns) -> None:
    generator = ManifestGenerator("NodePool", SEED)
    asked = refused = 0
    while asked < MANIFESTS // 20:
        before = generator.next()
        former = typed(before)
        if not (isinstance(former, NodePool) and dry_runs.create(before).accepted):
            continue
        dry_runs.store(before)
        for _ in range(5):
            after = generator.successor(before)
            answer, read = dry_runs.replace(after), typed(after)
            ours = is_accepted(after) and isinstance(read, NodePool) and not list(transition_problems(read, former))
            if ours != answer.accepted:
                assert difference_of(after, accepted_there=answer.accepted), (before, after, answer.causes)
            asked += 1
            refused += is_accepted(after) and not answer.accepted
    assert refused >= asked // 20
