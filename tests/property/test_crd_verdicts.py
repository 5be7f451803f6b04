"""Manifests made from upstream's CRDs: what their schemas and rules refuse, `shiplap validate` refuses, and no more.

The rules are evaluated by Google's CEL. tests/e2e/test_api_server_verdicts.py asks a real API server.
"""

from __future__ import annotations

import pytest

from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.validation.nodepool_rules import transition_problems
from tests.crds import schema_judge
from tests.crds.manifest_generator import ManifestGenerator
from tests.crds.schemas import FILES, schema_of
from tests.crds.verdicts import difference_of, is_accepted, typed

MANIFESTS = 250


@pytest.mark.parametrize("kind", FILES)
def test_what_a_crd_refuses_is_refused(kind: str) -> None:
    generator = ManifestGenerator(kind, 1)
    sound = 0
    for _ in range(MANIFESTS):
        manifest = generator.next()
        manifest["metadata"] = {"name": "a"}  # no CRD speaks of it
        broken = schema_judge.object_violations(kind, manifest)
        if is_accepted(manifest) != (not broken):
            assert difference_of(manifest, accepted_there=not broken), (manifest, broken)
        sound += not broken
    assert sound >= 0.3 * MANIFESTS


@pytest.mark.parametrize("kind", FILES)
def test_written_defaults_change_nothing(kind: str) -> None:
    generator = ManifestGenerator(kind, 3)
    for _ in range(MANIFESTS):
        manifest = generator.next()
        read = typed(manifest)
        if read is not None and is_accepted(manifest):
            stored = {**manifest, "spec": schema_judge.defaulted(schema_of(kind), manifest["spec"])}
            assert typed(stored) == read


def test_a_pool_that_replaces_another() -> None:
    generator = ManifestGenerator("NodePool", 4)
    refused = 0
    for _ in range(MANIFESTS):
        before = generator.next()
        after = generator.successor(before)
        former, read = typed(before), typed(after)
        if not (isinstance(former, NodePool) and isinstance(read, NodePool) and is_accepted(before)):
            continue
        stored = schema_judge.defaulted(schema_of("NodePool"), before["spec"])
        broken = schema_judge.object_violations("NodePool", after, stored)
        accepted = is_accepted(after) and not list(transition_problems(read, former))
        if accepted != (not broken):
            assert difference_of(after, accepted_there=not broken), (before, after, broken)
        refused += is_accepted(after) and not accepted
    assert refused >= 10
