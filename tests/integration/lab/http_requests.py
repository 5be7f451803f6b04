"""Requests to the local API without any client's help."""

from __future__ import annotations

from typing import Any

import msgspec
import urllib3


class HttpRequests:
    """One connection; a body is sent as JSON, or as it is when it is bytes. `warnings` came beside answers."""

    def __init__(self, endpoint: str) -> None:
        self.warnings: list[str] = []
        self.pool = urllib3.connection_from_url(endpoint)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else None
        response = self.pool.request(method, path, body=data, headers={"Content-Type": kind}, retries=False)
        self.warnings += response.headers.getlist("Warning")
        return response.status, response.json()
