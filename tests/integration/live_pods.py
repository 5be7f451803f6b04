"""Pods of a live cluster."""

from __future__ import annotations

from functools import partial

from tests.builders.pods import pod_object

pod = partial(pod_object, cpu="1", namespace="web", tolerations=[{"operator": "Exists"}])
