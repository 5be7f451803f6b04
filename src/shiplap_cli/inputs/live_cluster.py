"""A cluster that is asked, instead of files that stand for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap.cluster.enter import context_transport
from shiplap.cluster.kubeconfig import Access, load
from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, InvalidInput
from shiplap.manifests.files.documents import Document
from shiplap_cli.inputs.cluster_files import ClusterState, state_of
from shiplap_cli.inputs.cluster_listing import ClusterListing, MissingPermission, list_cluster
from shiplap_cli.output import progress


class LiveCluster(msgspec.Struct, frozen=True):
    """What a cluster showed."""

    access: Access
    state: ClusterState
    kubernetes_version: str
    unseen: tuple[MissingPermission, ...]


def access_of(kubeconfig: Path | None, context: str) -> Access:
    """How a cluster is entered by a kubeconfig. Raises InvalidInput."""
    instead = ", or give the cluster's objects by --cluster-state"
    return load(kubeconfig, context, environment=os.environ, home=Path.home(), instead=instead)


def read_live_cluster(access: Access, *, manifests: bool, workloads: bool) -> LiveCluster:
    """Enter a cluster and list what a decision reads.

    Raises:
        InvalidInput: the credentials are of no use, or the cluster does not answer.
    """
    source = f"context {access.context}"
    with progress(f"asking {access.server}") as report:
        try:
            transport = context_transport(access, clock=time.time, environment=os.environ, sleep=time.sleep)
            found = list_cluster(
                transport, namespace=access.namespace, manifests=manifests, workloads=workloads, report=report
            )
        except ClusterError as error:
            raise InvalidInput(source, _explained(error, access)) from error
    return LiveCluster(
        access=access,
        state=_state(found, source),
        kubernetes_version=found.kubernetes_version,
        unseen=found.unseen,
    )


def _state(found: ClusterListing, source: str) -> ClusterState:
    return state_of(found.view, _documents(source, found.node_claims), _documents(source, found.manifests))


def _documents(source: str, objects: Iterable[Mapping[str, Any]]) -> Sequence[Document]:
    return [
        Document(source, number, 0, f"{item['kind']}/{_name(item)}", dict(item)) for number, item in enumerate(objects)
    ]


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "?")) if isinstance(metadata, Mapping) else "?"


def _explained(error: ClusterError, access: Access) -> str:
    """What happened and what to do about it."""
    if isinstance(error, ClusterDenied) and error.status == 401:
        who = f"user {access.user}" if access.user else "the context, which names no user"
        return f"{error}; the credentials of {who} were refused: log in again, or renew them in the kubeconfig"
    if isinstance(error, ClusterUnreachable) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{error}; the kubeconfig's certificate-authority is not that of this server"
    if isinstance(error, ClusterUnreachable):
        return f"{error}; see whether `kubectl --context {access.context} version` is answered"
    return str(error)
