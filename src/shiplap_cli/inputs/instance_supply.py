"""Instance types and offerings of each EC2NodeClass: from AWS, from the embedded catalogue or from a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from shiplap.errors import AwsError, InvalidInput
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ami_families import first_hashes, spec_hash
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.scheduling.model.snapshot import NodeClassCatalog
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.cluster_inputs import ClusterInputs
from shiplap_cli.options import Sources
from shiplap_lab.catalogue import embedded

NODE_CLASS_FIELD = "spec.template.spec.nodeClassRef.name"


class OfferedSupply(msgspec.Struct, frozen=True):
    """Types, and the EC2NodeClasses that AWS has answered."""

    catalog: Catalog
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def used_node_classes(manifests: Manifests) -> list[str]:
    """The EC2NodeClasses that NodePools use, sorted."""
    return sorted({pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools})


def catalogs_of_file(manifests: Manifests, types: tuple[InstanceType, ...]) -> tuple[NodeClassCatalog, ...]:
    """The types of a file under each of them."""
    known = {item.metadata.name: item for item in manifests.node_classes}
    return tuple(
        NodeClassCatalog(name, types, spec_hash=spec_hash(known[name]), first_hashes=first_hashes(known[name]))
        if name in known
        else NodeClassCatalog(name, types)
        for name in used_node_classes(manifests)
    )


def supply_of(sources: Sources, cluster_inputs: ClusterInputs, manifests: Manifests) -> OfferedSupply:
    """What can be bought: asked of AWS when that is wanted or possible, else the embedded catalogue.

    Raises:
        InvalidInput: AWS was to be asked and does not answer, or the region is not known.
    """
    region, installed = cluster_inputs.cluster.region, cluster_inputs.installed
    if sources.aws is False or (sources.aws is None and not cluster_inputs.live and installed is None):
        return embedded_supply(cluster_inputs)
    from shiplap_cli.inputs.aws_supply import has_credentials  # noqa: PLC0415 - loads botocore
    from shiplap_cli.inputs.aws_supply import supply_from_aws as ask_aws  # noqa: PLC0415 - as above

    used = set(used_node_classes(manifests))
    node_classes = [item for item in manifests.node_classes if item.metadata.name in used]
    if sources.aws is None and not has_credentials():
        why = "there are no AWS credentials"
    else:
        try:
            found = ask_aws(
                cluster_inputs.cluster, node_classes, installed.catalog(region) if installed is not None else None
            )
            return OfferedSupply(found.catalog, found.resolved, found.not_ready, found.notes)
        except AwsError as error:
            if sources.aws:
                hint = "see whether `aws sts get-caller-identity` is answered, or plan with --no-aws"
                raise InvalidInput("--aws", f"{error}; {hint}") from error
            why = with_hint(error)
    return embedded_supply(cluster_inputs, f"; {why}")


def embedded_supply(cluster_inputs: ClusterInputs, why: str = "") -> OfferedSupply:
    """The catalogue that comes with the command line; of the default Region where it does not know that of the nodes.

    Raises:
        InvalidInput: it does not know the Region that was asked for.
    """
    region, unknown = cluster_inputs.cluster.region, ""
    if not cluster_inputs.region_given and region not in embedded.regions():
        region, unknown = embedded.DEFAULT_REGION, f" ({region} of the nodes is not known)"
    said = f"embedded catalogue of {region}{unknown}: prices are estimates, AMIs and subnets are not looked at{why}"
    return OfferedSupply(embedded.load(region), notes=(said,))


def catalogs_of(
    manifests: Manifests,
    cluster_inputs: ClusterInputs,
    supply: OfferedSupply,
    learned: Sequence[LearnedCapacity],
    only: Collection[str] | None = None,
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass, or only under some.

    Raises:
        InvalidInput: a NodePool names an EC2NodeClass that is not among the manifests.
    """
    setting = cluster_setting(cluster_inputs.cluster, cluster_inputs.state.view.daemon_sets)
    known = {item.metadata.name: item for item in manifests.node_classes}
    catalogs = []
    for name in used_node_classes(manifests):
        if name not in known:
            pool = next(p for p in manifests.node_pools if p.spec.template.spec.node_class_ref.name == name)
            reason = f"there is no EC2NodeClass {name!r} among the manifests; give it, or a --catalog"
            raise InvalidInput("manifests", reason, document=f"NodePool/{pool.metadata.name}", field=NODE_CLASS_FIELD)
        if only is not None and name not in only:
            continue
        if name in supply.not_ready:
            catalogs.append(NodeClassCatalog(name, not_ready=supply.not_ready[name]))
            continue
        resolved = supply.resolved.get(name)
        applicable = learned if resolved is not None else learned_for_unknown_ami(learned, _ami_ids(known[name]))
        try:
            types = instance_types(
                supply.catalog,
                known[name],
                setting,
                resolved=resolved,
                learned=applicable,
                unavailable=cluster_inputs.installed.resting(supply.catalog)
                if cluster_inputs.installed is not None
                else (),
            )
        except InvalidInput as error:  # as in a cluster: the pools of the other EC2NodeClasses go on
            catalogs.append(NodeClassCatalog(name, not_ready=error.what))
        else:
            selection = resolved.selection if resolved is not None else None
            says = spec_hash(known[name], resolved.cluster_ca if resolved is not None else "")
            first = first_hashes(known[name])
            catalogs.append(NodeClassCatalog(name, types, spec_hash=says, first_hashes=first, selection=selection))
    return tuple(catalogs)


def _ami_ids(node_class: EC2NodeClass) -> list[str]:
    return [term.id for term in node_class.spec.ami_selector_terms if term.id]


def learned_for_unknown_ami(learned: Iterable[LearnedCapacity], amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
    """Learned capacity as it applies when manifests alone are planned and no AMI is resolved.

    Entries of the AMIs that the EC2NodeClass names by id count, or of all AMIs when it names none; of several for one
    type and kubelet settings the one observed last.
    """
    latest: dict[tuple[str, str], LearnedCapacity] = {}
    for entry in sorted(learned, key=lambda entry: (_observed_at(entry), entry.ami)):
        if not amis or entry.ami in amis:
            latest[entry.instance_type, entry.kubelet_hash] = msgspec.structs.replace(entry, ami="")
    return tuple(latest[key] for key in sorted(latest))


def _observed_at(entry: LearnedCapacity) -> float:
    return max((observation.observed_at for observation in entry.recent), default=0.0)
