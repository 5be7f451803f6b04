"""The AMIs an EC2NodeClass selects, with what an instance type must be to run each; newest first, deprecated last.

Every image that the selectors match is kept, one per distinct set of requirements, and instance types are mapped to
them by their full labels later: two images that differ in what they need never shadow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shiplap.aws.ec2_errors import aws_errors
from shiplap.aws.selectors.ami_aliases import AmiVariant, RequirementLines, ami_variants
from shiplap.aws.selectors.network import tag_filters
from shiplap.aws.selectors.parameters import Parameters
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.ec2_catalog import ARCHITECTURES
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, ImageTypeDef

_DEFAULT_OWNERS = ("self", "amazon")


class AmiResolver:
    """Answers AMI selectors through SSM and DescribeImages."""

    def __init__(
        self,
        ec2: EC2Client,
        parameters: Parameters,
        clock: Callable[[], float],
        owners: Sequence[str] = (),
    ) -> None:
        """`owners` bounds whose images are taken: ids of accounts, `self` or `amazon`; anybody's where it is empty."""
        self._ec2 = ec2
        self._parameters = parameters
        self._clock = clock
        self._allowed_owners = tuple(owners)

    def resolve(self, node_class: EC2NodeClass, kubernetes_version: str) -> tuple[Ami, ...]:
        """All AMIs of the node class in order of preference.

        Raises:
            NodeClassNotReady: no selector matches an image, or an alias does not exist for this version.
            AwsThrottled, AwsError: AWS refused.
        """
        terms = node_class.spec.ami_selector_terms
        wanted = tuple(v for term in terms if term.alias for v in ami_variants(term.alias, kubernetes_version))
        amis = [*self._of_variants(wanted), *self._of_terms(terms)]
        if not amis:
            raise NodeClassNotReady(
                f"EC2NodeClass {node_class.metadata.name}: amiSelectorTerms match no image that a node can run",
                code="AMINotFound",
            )
        return ordered_amis(amis)

    def _of_variants(self, wanted: Sequence[AmiVariant]) -> list[Ami]:
        values = self._parameters.values(variant.parameter for variant in wanted)
        images = {image["ImageId"]: image for image in self._images_by_id(values.values())}
        return [
            self._ami(images[values[variant.parameter]], variant.requirements)
            for variant in wanted
            if values.get(variant.parameter) in images
        ]

    def _of_terms(self, terms: Sequence[AmiSelectorTerm]) -> list[Ami]:
        ids = [term.id for term in terms if term.id]
        ids += self._parameters.values(term.ssm_parameter for term in terms if term.ssm_parameter).values()
        images = self._images_by_id(ids)
        for term in terms:
            if term.name or term.owner or term.tags:
                images += self._images(_filters(term), _owners(term))
        return [
            self._ami(image, ((labels.ARCH, "In", (ARCHITECTURES[image["Architecture"]],)),))
            for image in {image["ImageId"]: image for image in images}.values()
            if image.get("Architecture") in ARCHITECTURES
        ]

    def _ami(self, image: ImageTypeDef, requirements: RequirementLines) -> Ami:
        deprecation = image.get("DeprecationTime", "")
        return Ami(
            id=image["ImageId"],
            name=image.get("Name", ""),
            created=image.get("CreationDate", ""),
            deprecated=bool(deprecation) and epoch_of(deprecation) <= self._clock(),
            requirements=requirements,
        )

    def _images_by_id(self, ids: Iterable[str]) -> list[ImageTypeDef]:
        wanted = sorted(set(ids))
        return self._images([{"Name": "image-id", "Values": wanted}], ()) if wanted else []

    def _images(self, filters: list[FilterTypeDef], owners: Sequence[str]) -> list[ImageTypeDef]:
        of_owners = self._of_allowed(owners)
        if self._allowed_owners and not of_owners:
            return []
        request: dict[str, Any] = {"Owners": list(of_owners)} if of_owners else {}
        available: FilterTypeDef = {"Name": "state", "Values": ["available"]}
        with aws_errors("describe images"):
            pages = self._ec2.get_paginator("describe_images").paginate(
                Filters=[*filters, available], IncludeDeprecated=True, **request
            )
            return [image for page in pages for image in page["Images"]]

    def _of_allowed(self, owners: Sequence[str]) -> Sequence[str]:
        """The owners that are asked for and allowed; all allowed ones where an EC2NodeClass names none."""
        if not self._allowed_owners:
            return owners
        is_named = bool(owners) and owners != _DEFAULT_OWNERS
        return [name for name in self._allowed_owners if not is_named or name in owners]


def ordered_amis(amis: Iterable[Ami]) -> tuple[Ami, ...]:
    """One AMI per set of requirements, best first: not deprecated, newest, then by id.

    Of two with equal requirements the one that is not deprecated stays, then the newer, then the greater name.
    """
    best: dict[RequirementLines, Ami] = {}
    for ami in sorted(amis, key=lambda ami: (not ami.deprecated, ami.created, ami.name, ami.id)):
        best[tuple(sorted(ami.requirements))] = ami
    newest_first = sorted(sorted(best.values(), key=_by_id), key=lambda ami: ami.created, reverse=True)
    return tuple(sorted(newest_first, key=lambda ami: ami.deprecated))


def _by_id(ami: Ami) -> tuple[str, RequirementLines]:
    return ami.id, ami.requirements


def _filters(term: AmiSelectorTerm) -> list[FilterTypeDef]:
    filters = tag_filters(term.tags)
    if term.name:
        filters.append({"Name": "name", "Values": [term.name]})
    return filters


def _owners(term: AmiSelectorTerm) -> Sequence[str]:
    """A name alone is looked for among one's own and Amazon's images; tags alone among all."""
    if term.owner:
        return (term.owner,)
    return _DEFAULT_OWNERS if term.name else ()


def epoch_of(text: str) -> float:
    """Return the moment in epoch seconds; UTC where no time zone is written."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
