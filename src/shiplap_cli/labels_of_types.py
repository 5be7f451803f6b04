"""The labels that nodes of the catalogue's instance types have, before any node is there."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shiplap.instances.catalog.ami_families import family_of
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_labels import LabelValue, RequirementCache, hardware_labels, meets
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.custom_resources import EC2NodeClass


class Supply:
    """The labels of the catalogue's instance types, as nodes of an EC2NodeClass have them."""

    def __init__(self, catalog: Catalog, node_class: EC2NodeClass | None) -> None:
        family = family_of(node_class or _ANY_CLASS)
        self.types: list[dict[str, LabelValue]] = [hardware_labels(kind, family, "") for kind in catalog.types]
        self._cache = RequirementCache()

    def values_of(self, key: str) -> frozenset[str]:
        """All values that the types have of a label."""
        values: set[str] = set()
        for each in self.types:
            value = each.get(key)
            values |= {value} if isinstance(value, str) else set(value or ())
        return frozenset(values)

    def has_any(self, requirements: Requirements) -> bool:
        """True if a type meets all requirements that are about labels of types."""
        asked = [item for item in requirements.items() if item[0] in self.types[0] and item[0] != labels.REGION]
        return any(all(meets(wanted, self._given(each, key)) for key, wanted in asked) for each in self.types)

    def _given(self, of_type: Mapping[str, LabelValue], key: str) -> Requirement:
        return self._cache[key, of_type[key]]


_ANY_CLASS = msgspec.convert(
    {"metadata": {"name": "any"}, "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}]}}, EC2NodeClass
)
