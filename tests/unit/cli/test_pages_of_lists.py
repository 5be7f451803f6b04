"""A person's command reads a list of a cluster to its last page, the first page from the watch cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
