"""The cluster that a decision is made on, asked or from files, with its settings, claim rules and install."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Node
from shiplap.manifests.claim_rules import ClaimRule, ClaimRules, rule_problems
from shiplap.settings import ClusterSettings
from shiplap_cli.inputs.cluster_files import ClusterState, read_cluster_state, read_scheduler_config, read_settings
from shiplap_cli.inputs.cluster_listing import MissingPermission, access_of, read_live_cluster
from shiplap_cli.inputs.workloads import read_scale
from shiplap_cli.installs.find_install import InstallOptions, dev_access
from shiplap_cli.options import Sources
from shiplap_lab.catalogue import embedded

if TYPE_CHECKING:
    from shiplap_cli.installs.installed import InstalledCluster
import re
from collections import Counter

from shiplap.kubernetes import labels


def read_claim_rules(path: Path) -> tuple[ClaimRule, ...]:
    """The rules of a file.

    Raises:
        InvalidInput: the file cannot be read, or is not one document.
        InvalidManifests: with every problem of it.
    """
    return read_settings(path, ClaimRules, "claimRules", lambda rules: rule_problems(rules.claim_rules)).claim_rules


_FILES = "files"


class ClusterInputs(msgspec.Struct, frozen=True):
    """A cluster, from files or asked, the settings that its catalogue is made with, and the install that serves it.

    The Region of the settings is `region_given` where an option or an install gives it, else that of the nodes;
    `region_assumed` says why that one is not sure, and is empty where it is.
    """

    state: ClusterState
    cluster: ClusterSettings
    live: bool
    region_given: bool = False
    region_assumed: str = ""
    unseen: tuple[MissingPermission, ...] = ()
    installed: InstalledCluster | None = None


def read_cluster_inputs(
    sources: Sources, which: InstallOptions, moment: float, *, own_manifests: bool
) -> ClusterInputs:
    """The files that were named, else the cluster of a context or of `shiplap lab dev`; the install comes first."""
    asked = bool(sources.context or sources.kubeconfig)
    if sources.cluster_state and asked:
        option = "--context" if sources.context else "--kubeconfig"
        raise InvalidInput(option, "asks a cluster, and --cluster-state stands for one; give one of them")
    if sources.scale and not sources.cluster_state:
        raise InvalidInput("--scale", "is about workloads in files: give them by --cluster-state")
    installed = None
    if which.given:
        from shiplap_cli.installs.installed import read_installed_cluster  # noqa: PLC0415 - files need no AWS

        installed = read_installed_cluster(which, moment)
    cluster = _settings(sources, installed)
    if sources.cluster_state:
        state = read_cluster_state(sources.cluster_state, [read_scale(text) for text in sources.scale or ()])
        region = _region(sources, installed, state.view.nodes)
        cluster = replace(cluster, region=region.name)
        return ClusterInputs(state, cluster, False, region.given, region.assumed, installed=installed)
    access = dev_access(which.cluster) if which.dev and not asked else access_of(sources.kubeconfig, sources.context)
    deployed = installed.settings if installed is not None else None
    own = own_manifests and (deployed is None or deployed.live_manifests)
    live = read_live_cluster(
        access,
        manifests=own,
        workloads=bool(cluster.pod_topology_spread.constraints()),
        features=None if installed is None else deployed.policies if deployed is not None else (),
    )
    of_install = installed.settings if installed is not None else None
    if installed is not None and of_install is not None:
        installed.notes.extend(_context_warnings(access.context, access.server, of_install))
    region = _region(sources, installed, live.state.view.nodes)
    cluster = replace(
        cluster,
        name=installed.cluster if installed is not None and installed.cluster else live.access.context,
        region=region.name,
        endpoint=cluster.endpoint or live.access.server,
        kubernetes_version=cluster.kubernetes_version or live.kubernetes_version,
    )
    # An install's claims are in its table; that its cluster has no NodeClaims to list hides nothing.
    known = installed is not None and installed.state is not None
    unseen = tuple(permission for permission in live.unseen if not (known and permission.resource == "nodeclaims"))
    return ClusterInputs(live.state, cluster, True, region.given, region.assumed, unseen, installed)


class _Region(msgspec.Struct, frozen=True):
    """The Region of prices and zones, as in `ClusterInputs`."""

    name: str
    given: bool = False
    assumed: str = ""


def _region(sources: Sources, installed: InstalledCluster | None, nodes: Iterable[Node]) -> _Region:
    regions = regions_of(nodes)
    if sources.region:
        elsewhere = f"all nodes are of {' or '.join(regions)}, not of {sources.region}: none of them has a price"
        return _Region(sources.region, True, elsewhere if regions and sources.region not in regions else "")
    if installed is not None and installed.settings is not None:
        return _Region(installed.settings.region, given=True)
    if not regions:
        default = embedded.DEFAULT_REGION
        return _Region(default, assumed=f"no node says its Region: {default} is assumed; --region gives another")
    first, *others = regions
    several = f"nodes are of {first} and {' and '.join(others)}: {first} is assumed for all; --region gives another"
    return _Region(first, assumed=several if others else "")


def _context_warnings(context: str, server: str, settings: ClusterSettings) -> list[str]:
    """A wrong context would be planned with the claims of another cluster."""
    known = settings.endpoint.rstrip("/")
    if not known or known == server.rstrip("/"):
        return []
    return [f"context {context} asks {server}, but cluster {settings.name} of the install is {known}: is it the same?"]


_SETTINGS = {
    "vm_memory_overhead_percent": "vm_memory_overhead_percent",
    "reserved_enis": "reserved_enis",
    "prefix_delegation": "prefix_delegation",
    "min_values_policy": "min_values_policy",
    "preference_policy": "preference_policy",
    "improve_seconds": "improve_s",
}
"""Options by the setting of a cluster that they stand for."""


def _settings(sources: Sources, installed: InstalledCluster | None) -> ClusterSettings:
    """The settings of the install, overridden by the options that differ from their defaults."""
    known = installed.settings if installed is not None else None
    if known is None:
        name = installed.cluster if installed is not None and installed.cluster else _FILES
        known = ClusterSettings(name=name, region=embedded.DEFAULT_REGION)
    usual = Sources()
    changes = {
        setting: getattr(sources, option)
        for option, setting in _SETTINGS.items()
        if getattr(sources, option) != getattr(usual, option)
    }
    if sources.scheduler_config is not None:
        changes["pod_topology_spread"] = read_scheduler_config(sources.scheduler_config).pod_topology_spread
    if sources.claim_rules is not None:
        changes["claim_rules"] = read_claim_rules(sources.claim_rules)
    return replace(known, **changes)


_OF_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
"""The Region that the name of an availability zone, local zone or Wavelength zone begins with."""


def region_of(node: Node) -> str:
    """The Region of the node's label, else of its zone's label, else of its `providerID`'s zone; empty without any."""
    region = labels.value_of(node.metadata.labels, labels.REGION)
    return region or next(filter(None, map(_region_of_zone, _zones(node))), "")


def regions_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The Regions that nodes say, that of most nodes first, then by name."""
    counted = Counter(map(region_of, nodes))
    del counted[""]
    return tuple(sorted(counted, key=lambda name: (-counted[name], name)))


def _zones(node: Node) -> Iterable[str]:
    yield labels.value_of(node.metadata.labels, labels.ZONE)
    # aws:///eu-west-1a/i-0123456789abcdef0; Fargate has aws:///eu-west-1a/<id>/fargate-ip-….
    if node.spec.provider_id.startswith("aws:///"):
        yield node.spec.provider_id.removeprefix("aws:///").partition("/")[0]


def _region_of_zone(zone: str) -> str:
    match = _OF_ZONE.match(zone)
    return match[0] if match else ""
