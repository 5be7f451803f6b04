"""Which AMI a node of an instance type boots: the best of all whose requirements the type really meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiplap.errors import InvalidInput
from shiplap.instances.labels import meets
from shiplap.instances.nodeclass import Ami
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement


class AmiChooser:
    """The AMIs of an EC2NodeClass in order of preference, ready to be asked type by type.

    AMIs that EC2 has deprecated come last. A label that a type does not define meets only NotIn and DoesNotExist, even
    if it is a well-known one: an image for GPUs must never win a type about whose GPUs nothing is known.
    """

    def __init__(self, amis: Sequence[Ami]) -> None:
        ordered = sorted(amis, key=lambda ami: ami.deprecated)
        self._candidates = [(ami.id, tuple(_requirements(ami).values())) for ami in ordered]

    def choose(self, type_requirements: Mapping[str, Requirement]) -> str | None:
        """The id of the AMI for a type with these labels, or None when no AMI fits."""
        for ami, wanted in self._candidates:
            if all(meets(item, type_requirements.get(item.key)) for item in wanted):
                return ami
        return None


def _requirements(ami: Ami) -> Requirements:
    try:
        return Requirements(requirement(key, operator, values) for key, operator, values in ami.requirements)
    except ValueError as error:
        raise InvalidInput(f"AMI {ami.id}", str(error), field="requirements") from error
