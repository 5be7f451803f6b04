"""Objects and rules for the contract of a cluster's API."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from shiplap_lab.cluster_simulator.access import PolicyRule

DOCS = Path(__file__).parents[3] / "docs"


RBAC = (DOCS / "rbac.yaml", DOCS / "rbac-cluster-manifests.yaml")


def shiplap_rules() -> tuple[PolicyRule, ...]:
    documents = [doc for path in RBAC for doc in yaml.safe_load_all(path.read_text())]
    rules = [rule for doc in documents if doc["kind"] == "ClusterRole" for rule in doc["rules"]]
    return msgspec.convert(rules, tuple[PolicyRule, ...])


def pod(name: str, **spec: object) -> dict:
    containers = [{"name": "main", "image": "main"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": containers, **spec}}


def node(name: str, **spec: object) -> dict:
    return {"metadata": {"name": name, "labels": {"kept": "yes", "changed": "no"}}, "spec": spec}
