"""Measures what the statuses of 10,000 NodeClaims cost a sweep: fakes instead of AWS and the API server.

Three sweeps: one in which nothing has changed, one in which pods have come to every node, and one in which every claim
lacks its object. Reading and writing over the network comes on top; `requests` counts it.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from shiplap.flows.sweep.manifest_statuses import publish_statuses
from tests.integration.flows.crowded_stage import CrowdedStage
from tests.integration.flows.test_many_claim_objects import CLAIMS, pods_come, published


def main() -> int:
    stage = CrowdedStage(CLAIMS)
    published(stage)
    print(f"{CLAIMS:,} claims, one sweep's statuses")
    measured("nothing has changed", stage)
    stage.clock.advance(60)
    pods_come(stage)
    measured("pods have come to every node", stage)
    for item in stage.server.list("nodeclaims").items:
        stage.server.patch("nodeclaims", item["metadata"]["name"], {"metadata": {"finalizers": None}})
        stage.server.delete("nodeclaims", item["metadata"]["name"])
    measured("no claim has an object", stage)
    settings = stage.read()
    tracemalloc.start()
    publish_statuses(settings, stage.context, stage.known)
    print(f"  {'memory at most':30} {tracemalloc.get_traced_memory()[1] / 2**20:7.0f} MiB, with what the fakes copy")
    return 0


def measured(about: str, stage: CrowdedStage) -> None:
    started = time.process_time()
    requests = published(stage).total()
    print(f"  {about:30} {1000 * (time.process_time() - started):7.0f} ms of processor time, {requests} requests")


if __name__ == "__main__":
    sys.exit(main())
