"""Instance types and offerings of each EC2NodeClass: from AWS, from the embedded catalogue or from a file."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from shiplap.errors import AwsError, InvalidInput, NodeClassNotReady
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ami_families import first_hashes, spec_hash
from shiplap.instances.catalog.ec2_catalog import Catalog, decode, encode
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec, Manifests
from shiplap.scheduling.model.snapshot import NodeClassCatalog
from shiplap.settings import ClusterSettings
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.cluster_inputs import ClusterInputs
from shiplap_cli.options import Sources
from shiplap_cli.output import progress
from shiplap_lab.catalogue import embedded

NODE_CLASS_FIELD = "spec.template.spec.nodeClassRef.name"

_PRICED = "us-east-1"
"""The Region whose list prices the estimates were fitted to."""

_ASSUMED_AMI = "al2023@latest"
"""The AMIs that Karpenter's own examples name."""


class InstanceSupply(msgspec.Struct, frozen=True):
    """Types, and EC2NodeClasses by name: resolved, or `not_ready` and why.

    An EC2NodeClass of which AWS would not speak is in neither.
    """

    catalog: Catalog
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def used_node_classes(manifests: Manifests) -> list[str]:
    """The EC2NodeClasses that NodePools use, sorted."""
    return sorted({pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools})


def with_assumed_node_classes(manifests: Manifests) -> tuple[Manifests, tuple[str, ...]]:
    """Where no EC2NodeClass is given, NodePools have ones of AL2023; with the words that say so."""
    names = used_node_classes(manifests)
    if manifests.node_classes or not names:
        return manifests, ()
    spec = EC2NodeClassSpec(ami_selector_terms=(AmiSelectorTerm(alias=_ASSUMED_AMI),))
    assumed = tuple(EC2NodeClass(ObjectMeta(name=name), spec) for name in names)
    said = (
        f"no EC2NodeClass among the manifests: {', '.join(names)} is assumed to be {_ASSUMED_AMI}, in every zone; "
        "its own AMI, kubelet and volumes may yield other capacity"
    )
    return msgspec.structs.replace(manifests, node_classes=assumed), (said,)


def catalogs_of_file(manifests: Manifests, types: tuple[InstanceType, ...]) -> tuple[NodeClassCatalog, ...]:
    """The types of a file under each of them."""
    known = {node_class.metadata.name: node_class for node_class in manifests.node_classes}
    return tuple(
        NodeClassCatalog(name, types, spec_hash=spec_hash(known[name]), first_hashes=first_hashes(known[name]))
        if name in known
        else NodeClassCatalog(name, types)
        for name in used_node_classes(manifests)
    )


def supply_of(sources: Sources, cluster_inputs: ClusterInputs, manifests: Manifests) -> InstanceSupply:
    """The supply of AWS where it is to be asked, or can be, else that of the embedded catalogue.

    Raises:
        InvalidInput: AWS was to be asked and does not answer, or the region is not known.
    """
    region, installed = cluster_inputs.cluster.region, cluster_inputs.installed
    if sources.aws is False or (sources.aws is None and not cluster_inputs.live and installed is None):
        return embedded_supply(cluster_inputs)
    used = set(used_node_classes(manifests))
    node_classes = [node_class for node_class in manifests.node_classes if node_class.metadata.name in used]
    if sources.aws is None and not has_credentials():
        why = "there are no AWS credentials"
    else:
        try:
            catalog = installed.catalog(region) if installed is not None else None
            return supply_from_aws(cluster_inputs.cluster, node_classes, catalog)
        except AwsError as error:
            if sources.aws:
                hint = "see whether `aws sts get-caller-identity` is answered, or plan with --no-aws"
                raise InvalidInput("--aws", f"{error}; {hint}") from error
            why = with_hint(error)
    return embedded_supply(cluster_inputs, f"; {why}")


def embedded_supply(cluster_inputs: ClusterInputs, why: str = "") -> InstanceSupply:
    """The catalogue that comes with the command line; of the default Region where it does not know that of the nodes.

    Raises:
        InvalidInput: it does not know the Region that was asked for.
    """
    region, unknown = cluster_inputs.cluster.region, ""
    if not cluster_inputs.region_given and region not in embedded.regions():
        region, unknown = embedded.DEFAULT_REGION, f" ({region} of the nodes is not known)"
    estimates = "prices are estimates" + (f" of {_PRICED}'s" if region != _PRICED else "")
    said = f"embedded catalogue of {region}{unknown}: {estimates}, AMIs and subnets are not looked at{why}"
    return InstanceSupply(embedded.load(region), notes=(said,))


def catalogs_of(
    manifests: Manifests,
    cluster_inputs: ClusterInputs,
    supply: InstanceSupply,
    learned: Sequence[LearnedCapacity],
    only: Collection[str] | None = None,
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass, or only under some.

    Raises:
        InvalidInput: a NodePool names an EC2NodeClass that is not among the manifests.
    """
    setting = cluster_setting(cluster_inputs.cluster, cluster_inputs.state.view.daemon_sets)
    known = {node_class.metadata.name: node_class for node_class in manifests.node_classes}
    settings = cluster_inputs.installed.settings if cluster_inputs.installed is not None else None
    catalogs = []
    for name in used_node_classes(manifests):
        if name not in known:
            if settings is not None and settings.live_manifests:
                continue  # as in its functions: a refused EC2NodeClass costs its own pools their launches
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
                cluster=cluster_inputs.cluster.name if cluster_inputs.installed is not None else "",
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


_CACHED_S = 3600.0


def has_credentials() -> bool:
    """True if there are credentials to try. Raises nothing: broken ones count, and their use shows what is wrong."""
    from shiplap.aws.session import credentials  # noqa: PLC0415 - botocore is loaded only where AWS is asked

    try:
        credentials()
    except AwsError as error:
        return error.code != "NoCredentials"
    return True


def supply_from_aws(
    settings: ClusterSettings, node_classes: Iterable[EC2NodeClass], catalog: Catalog | None = None
) -> InstanceSupply:
    """Ask AWS.

    Args:
        settings: region, endpoint and Kubernetes version of the cluster.
        node_classes: those that NodePools use.
        catalog: types and prices where they are known already.

    Raises:
        AwsError: types and zones cannot be had, so there is nothing to plan with.
    """
    from shiplap.aws.ec2.ec2_compute import Ec2Compute  # noqa: PLC0415 - as above
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    catalog = catalog or _catalog(settings.region)
    # Nothing is launched, and who may ask about AMIs may not ask SSM about an install's instance profiles.
    settings = msgspec.structs.replace(settings, install="")
    if not settings.endpoint:  # files do not say which EKS cluster they are of, and nothing is launched into it
        settings = msgspec.structs.replace(settings, endpoint="https://cluster.invalid")
    compute = Ec2Compute(
        settings,
        ec2=client("ec2", settings.region),
        ssm=lambda: client("ssm", settings.region),
        eks=lambda: client("eks", settings.region),
        clock=time.time,
    )
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes = []
    for node_class in node_classes:
        name = node_class.metadata.name
        unknown = f"AMIs and subnets of EC2NodeClass {name} are not known, so every zone counts"
        with progress(f"asking AWS for the AMIs and subnets of EC2NodeClass {name}"):
            try:
                resolved[name] = compute.resolve(node_class)
            except NodeClassNotReady as error:
                if settings.kubernetes_version or not any(term.alias for term in node_class.spec.ami_selector_terms):
                    not_ready[name] = str(error)
                else:
                    notes.append(f"{unknown}: {error}")
            except AwsError as error:
                notes.append(f"{unknown}: {error}")
    return InstanceSupply(catalog, resolved, not_ready, tuple(notes))


def _catalog(region: str) -> Catalog:
    """From the cache while it is fresh, else from AWS. A cache that cannot be used costs time only."""
    file = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "shiplap", f"{_account()}-{region}")
    known = _cached(file)
    if known is not None and 0 <= time.time() - known.refreshed_at < _CACHED_S:
        return known
    from shiplap.aws.pricing.catalog_source import Ec2CatalogSource  # noqa: PLC0415 - botocore
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    source = Ec2CatalogSource(
        region, ec2=client("ec2", region), price_list=lambda endpoint: client("pricing", endpoint), clock=time.time
    )
    with progress(f"asking AWS for the instance types and prices of {region}; kept for an hour"):
        catalog = source.fetch(known)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_bytes(encode(catalog))
        draft.replace(file)
    except OSError:
        pass  # a folder that cannot be written to: the next command asks again
    return catalog


def _account() -> str:
    """Spot prices and opted-in zones are an account's own; the access key stands for it without being shown."""
    from hashlib import sha256  # noqa: PLC0415 - only here

    from shiplap.aws.session import credentials  # noqa: PLC0415 - as above

    return sha256(credentials().access_key.encode()).hexdigest()[:12]


def _cached(file: Path) -> Catalog | None:
    try:
        return decode(file.read_bytes(), str(file))
    except (OSError, InvalidInput):
        return None
