"""Measures the work to inspect 500 EC2NodeClasses, and how many invocations of `catalog` they need.

Own work is measured as process time on all types of the embedded catalogue, without AWS. Then invocations are played in
virtual time, on a small catalogue: an inspection takes AWS_S for its requests, and for its own work as long as a
function of 512 MiB, which has 0.29 of a processor.
"""

from __future__ import annotations

import logging
import sys
import time

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.shared.bars import exit_code
from shiplap.flows.catalog.inspect import inspect
from shiplap.flows.catalog.inspections import inspect_all
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, Manifests
from shiplap.settings import ClusterSettings
from shiplap_lab.catalogue import embedded
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.stores import FakeStatus
from tests.builders.pools import family_pool
from tests.integration.flows.pools_of_classes import of_class
from tests.integration.flows.stage import Stage
from tests.integration.flows.stage import catalog as small_catalog

NODE_CLASSES = 500
AWS_S = 0.5
"""Four requests: subnets, security groups, images, instance profile; 0.1 to 0.15 s each."""

_PROCESSOR_SHARE = 512 / 1769
_TIME_S = 275.0
"""An invocation's 300 s without what it keeps free (`flows/catalog/entry.py`)."""

_EVERY_S = 300.0
_MEASURED = 20
_MOST_INVOCATIONS = 2
"""The bar: a status is then at most ten minutes old, and trusted for two hours."""


class SlowCompute(FakeCompute):
    """Tells of an EC2NodeClass after `takes_s` seconds of a clock."""

    takes_s = 0.0

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        STAGE.clock.advance(self.takes_s)
        return super().inspect(node_class)


STAGE = Stage()


def clusters(number: int) -> list[ClusterSettings]:
    """All EC2NodeClasses, spread over so many clusters."""
    each = NODE_CLASSES // number
    made = []
    for place in range(number):
        items = tuple(
            EC2NodeClass(
                ObjectMeta(name=f"class-{n:03d}"),
                EC2NodeClassSpec(ami_family="AL2023", tags={"team": f"{place}-{n}"}),
            )
            for n in range(each)
        )
        pools = tuple(of_class(family_pool(item.metadata.name, ("c7i",)), item.metadata.name) for item in items)
        manifests = Manifests(node_pools=pools, node_classes=items)
        made.append(msgspec.structs.replace(STAGE.settings, name=f"c{place:02d}", manifests=manifests))
    return made


def own_s(catalog: Catalog) -> float:
    """Process seconds of one inspection, the mean of _MEASURED; no two share what has been worked out."""
    (settings,) = clusters(1)
    some = msgspec.structs.replace(settings.manifests, node_classes=settings.manifests.node_classes[:_MEASURED])
    started = time.process_time()
    status = inspect(msgspec.structs.replace(settings, manifests=some), catalog, STAGE.context)
    took_s = time.process_time() - started
    assert all(item.ready.status == "True" for item in status.node_classes)
    return took_s / _MEASURED


def invocations(number: int, takes_s: float) -> tuple[int, float]:
    """Invocations until all EC2NodeClasses of so many clusters have been inspected, and seconds of the first."""
    SlowCompute.takes_s = takes_s
    compute, store = SlowCompute(STAGE.clock), FakeStatus()
    context = msgspec.structs.replace(STAGE.context, compute=compute)
    contexts = [(settings, context) for settings in clusters(number)]
    lasted = []
    for place in range(1, 100):
        began_at = STAGE.clock.now()
        status = inspect_all(contexts, {STAGE.settings.region: small_catalog()}, store, until=began_at + _TIME_S)
        lasted.append(STAGE.clock.now() - began_at)
        if sum(len(cluster.node_classes) for cluster in status.clusters) == NODE_CLASSES:
            return place, lasted[0]
        STAGE.clock.advance(max(0.0, _EVERY_S - lasted[-1]))
    raise AssertionError("never all")


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    logging.disable()
    catalog = embedded.load()
    each_s = own_s(catalog)
    takes_s = AWS_S + each_s / _PROCESSOR_SHARE
    table = Table("measured", "value", title=f"{NODE_CLASSES} EC2NodeClasses, {len(catalog.types):,} types")
    table.add_row("own work of an inspection", f"{each_s * 1000:.0f} ms")
    missed = []
    for number in (1, 20):
        needed, lasted_s = invocations(number, takes_s)
        table.add_row(f"invocations in {number} cluster(s), {takes_s:.2f} s for each class", str(needed))
        table.add_row("  the first lasts", f"{lasted_s:.0f} s")
        if needed > _MOST_INVOCATIONS:
            missed.append(f"{needed} invocations in {number} clusters, the bar is {_MOST_INVOCATIONS}")
    Console().print(table)
    return exit_code(missed)


if __name__ == "__main__":
    sys.exit(main())
