"""What AWS sells to somebody with credentials: types and prices of a region, AMIs and subnets of EC2NodeClasses.

Only Describe and Get requests. A catalogue is kept for an hour in the user's cache folder, because asking for all types
and prices takes the better part of a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shiplap.errors import AwsError, InvalidInput, NodeClassNotReady
from shiplap.instances.catalog.ec2_catalog import Catalog, decode, encode
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.settings import ClusterSettings
from shiplap_cli.output import progress

_CACHED_S = 3600.0


class InstanceSupply(msgspec.Struct, frozen=True):
    """EC2NodeClasses by name: answered, or `not_ready` and why. Those that AWS would not speak of are in neither."""

    catalog: Catalog
    resolved: dict[str, ResolvedNodeClass] = {}
    not_ready: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def has_credentials() -> bool:
    """Whether there are any to try. Raises nothing: broken ones count as there, and will say what is wrong."""
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
    for item in node_classes:
        name = item.metadata.name
        unknown = f"AMIs and subnets of EC2NodeClass {name} are not known, so every zone counts"
        with progress(f"asking AWS for the AMIs and subnets of EC2NodeClass {name}"):
            try:
                resolved[name] = compute.resolve(item)
            except NodeClassNotReady as error:
                if settings.kubernetes_version or not any(term.alias for term in item.spec.ami_selector_terms):
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
        found = source.fetch(known)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_bytes(encode(found))
        draft.replace(file)
    except OSError:
        pass  # a folder that cannot be written to: the next command asks again
    return found


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
