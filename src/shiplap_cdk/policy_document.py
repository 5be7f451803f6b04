"""The parts of shiplap.yaml and of the stack that an optional feature adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.decoding import Path, Problem
from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.registry import parts
from shiplap_cdk.region_differences import Feature

Grant = tuple[str, Sequence[str], str, str]
"""One permission: the name of its statement, the actions, a table (`state` or `capacity`), and the only partition."""


class PolicyDocument:
    """One feature as a user writes it. `shiplap_cdk.policies.<name>_document` holds one as DOCUMENT."""

    of_cluster: ClassVar[tuple[Any, Any] | None] = None
    """Type and default of the feature's key of a cluster in shiplap.yaml; None if it has none."""

    of_install: ClassVar[tuple[Any, Any] | None] = None
    """Type and default of the feature's key of the install in shiplap.yaml; None if it has none."""

    explanation: ClassVar[str] = ""
    """The meaning of the feature's keys in shiplap.yaml."""

    rbac: ClassVar[str] = ""
    """The RBAC manifest in docs that a cluster needs where the feature is on; empty if it needs none."""

    annotations: ClassVar[tuple[str, ...]] = ()
    """The annotations of NodePools that nothing reads where the feature is off."""

    functions: ClassVar[tuple[str, ...]] = ()
    """The functions that `grants` and `asks` are of."""

    def settings(self, written: Any) -> PolicySettings | None:
        """Return the settings that functions get; None where the feature is off."""
        raise NotImplementedError

    def settings_of(self, cluster: Any, install: Any) -> PolicySettings | None:
        """Return the settings of a cluster by its key and by that of the install; a feature of both overrides this."""
        return self.settings(install if self.of_cluster is None else cluster)

    def problems(self, written: Any) -> Iterable[Problem]:
        """Return what is wrong with the key of a cluster: the field below it, and the reason."""
        return ()

    def misfits(self, written: Any, manifests: Manifests) -> Iterable[Problem]:
        """Return what the key of a cluster names and its manifests do not have: the field below it, and the reason."""
        return ()

    def problems_of_install(self, written: Any, install: str) -> Iterable[Problem]:
        """Return what is wrong with the key of an install, REGION/NAME: the field below it, and the reason."""
        return ()

    def needs(self, written: Any) -> Iterable[tuple[Path, Feature]]:
        """Return what the key of an install needs and a Region may lack: the field below it, and what it needs."""
        return ()

    def unwelcome(self, written: Any) -> Mapping[str, str]:
        """Return the annotations that no NodePool may have beside the key of an install, each with the reason."""
        return {}

    def asks(self, written: Any) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what functions may ask AWS by the key of an install: names of statements, and their actions."""
        return ()

    def grants(self) -> Sequence[Grant]:
        """Return what functions may do beside, where a cluster has the feature on."""
        return ()


def unknown_node_pool(name: str, manifests: Manifests) -> str:
    """The reason against the name of a NodePool that the manifests do not have."""
    known = ", ".join(sorted(pool.metadata.name for pool in manifests.node_pools)) or "none"
    return f"NodePool {name!r} is not in the manifests; there are {known}"


def documents() -> tuple[tuple[str, PolicyDocument], ...]:
    """Return the parts of all features, each with the name of the feature."""
    return tuple((name, module.DOCUMENT) for name, module in parts("shiplap_cdk", "document"))
