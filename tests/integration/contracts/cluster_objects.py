"""Objects and rules for the contract of a cluster's API."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import yaml

from shiplap_lab.cluster_simulator.access import PolicyRule
from tests.builders.nodes import node_object

DOCS = Path(__file__).parents[3] / "docs"


RBAC = tuple(sorted(DOCS.glob("rbac*.yaml")))


node = partial(node_object, labels={"kept": "yes", "changed": "no"})


def shiplap_rules() -> tuple[PolicyRule, ...]:
    documents = [doc for path in RBAC for doc in yaml.safe_load_all(path.read_text())]
    rules = [rule for doc in documents if doc["kind"] == "ClusterRole" for rule in doc["rules"]]
    return msgspec.convert(rules, tuple[PolicyRule, ...])
