"""A person's command reads a list of a cluster to its last page, the first page from the watch cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shiplap.errors import ClusterDenied
from shiplap_cli.inputs.cluster_listing import list_cluster

NODES = "/api/v1/nodes"


class Pages:
    """An API server that has three nodes and shows one in a page."""

    most_bytes = 2**20

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        if path == "/version":
            return b'{"major": "1", "minor": "34"}'
        if path != NODES:
            return b'{"metadata": {"resourceVersion": "9"}, "items": []}'
        self.asked.append(dict(query or {}))
        number = int(self.asked[-1].get("continue", 1))
        more = {"continue": str(number + 1)} if number < 3 else {}
        return json.dumps(
            {
                "metadata": {"resourceVersion": "9", **more},
                "items": [{"metadata": {"name": f"n{number}", "uid": f"u{number}"}}],
            }
        ).encode()


def test_what_only_the_last_page_holds_is_listed() -> None:
    server = Pages()
    found = list_cluster(server, namespace="default", manifests=False, workloads=False)  # type: ignore[arg-type]
    assert [item.metadata.name for item in found.view.nodes] == ["n1", "n2", "n3"]
    limit = server.asked[0]["limit"]
    # An API server refuses a token together with a version.
    assert server.asked == [
        {"limit": limit, "resourceVersion": "0"},
        {"limit": limit, "continue": "2"},
        {"limit": limit, "continue": "3"},
    ]


class OneNamespace(Pages):
    """An API server that lists pods of one namespace only; it notes which paths were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        self.paths.append(path)
        if path == "/api/v1/pods":
            raise ClusterDenied("pods is forbidden", status=403)
        return super().get(path, query)


def test_the_namespace_of_a_kubeconfig_is_one_part_of_a_path() -> None:
    server = OneNamespace()
    list_cluster(server, namespace="a/../kube-system?x", manifests=False, workloads=False)  # type: ignore[arg-type]
    assert "/api/v1/namespaces/a%2F..%2Fkube-system%3Fx/pods" in server.paths
