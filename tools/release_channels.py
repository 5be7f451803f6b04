"""Judges whether a release could also be published in Construct Hub and in the Serverless Application Repository.

Neither is needed for a release of its own, so what they ask and is not met is told, and fails nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Document = Mapping[str, Any]

_HUB = "Construct Hub"
_HUB_SOURCE = (
    "https://github.com/cdklabs/construct-hub/blob/main/src/package-sources/npmjs/packument-processing.lambda-shared.ts"
)
_HUB_RULES = "https://aws.amazon.com/blogs/opensource/best-practices-for-discoverability-of-a-construct-library-on-construct-hub/"
_HUB_KEYWORDS = frozenset({"cdk", "aws-cdk", "awscdk"})
_HUB_LICENCES = re.compile(r"Apache|BSD|EPL|MPL-2\.0|ISC|CDDL|MIT")
_REPOSITORY = "Serverless Application Repository"
_GUIDE = "https://docs.aws.amazon.com/serverlessrepo/latest/devguide"
_METADATA = (
    "https://docs.aws.amazon.com/serverless-application-model/latest/developerguide/"
    "serverless-sam-template-publishing-applications-metadata-properties.html"
)
_NEEDED = ("Name", "Description", "Author")
_NEEDED_IN_PUBLIC = ("SpdxLicenseId", "LicenseUrl", "SemanticVersion", "SourceCodeUrl", "ReadmeUrl")
_BROAD = frozenset({"iam:attachrolepolicy", "iam:putrolepolicy", "iam:*", "*"})
_CAPABILITIES = {
    "CAPABILITY_IAM": ("AWS::IAM::Group", "AWS::IAM::InstanceProfile", "AWS::IAM::Policy", "AWS::IAM::Role"),
    "CAPABILITY_RESOURCE_POLICY": ("AWS::Lambda::Permission", "AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy"),
    "CAPABILITY_AUTO_EXPAND": ("AWS::CloudFormation::Stack", "AWS::Serverless::Application"),
}


class Demand(NamedTuple):
    """What a channel asks. `is_met` is None where it cannot be told here, and `found` says what there is."""

    channel: str
    asks: str
    is_met: bool | None
    found: str
    source: str

    @property
    def text(self) -> str:
        """One line for people."""
        verdict = {True: "met", False: "not met", None: "not known"}[self.is_met]
        return f"{self.channel}: {self.asks}: {verdict}, {self.found} ({self.source})"


def construct_hub(package: Document, licence: str) -> Iterator[Demand]:
    """Judge the package that npm would get; `licence` is that of the project."""
    has_jsii = "jsii" in package
    yield Demand(
        _HUB,
        "a jsii module, which only TypeScript compiles to",
        has_jsii,
        "package.json has a jsii section" if has_jsii else "the construct is Python",
        _HUB_SOURCE,
    )
    is_private = bool(package.get("private"))
    yield Demand(
        _HUB, "published to npm", not is_private, f"package.json is {'private' if is_private else 'public'}", _HUB_RULES
    )
    keywords = _HUB_KEYWORDS & {*package.get("keywords", ())}
    frameworks = {"constructs", "aws-cdk-lib"} & {
        *package.get("dependencies", ()),
        *package.get("peerDependencies", ()),
    }
    yield Demand(
        _HUB,
        "a dependency on constructs, or a keyword such as cdk",
        bool(keywords or frameworks),
        ", ".join(sorted(keywords | frameworks)) or "package.json has neither",
        _HUB_SOURCE,
    )
    yield Demand(_HUB, "a permissive licence", bool(_HUB_LICENCES.search(licence)), licence, _HUB_RULES)


def serverless_repository(template: Document, nested: Iterable[Document] = ()) -> Iterator[Demand]:
    """Judge the template of an install, and those that are nested in it."""
    described = template.get("Metadata", {}).get("AWS::ServerlessRepo::Application", {})
    for asks, names in (
        ("a name, a description and an author", _NEEDED),
        ("what a public application has beside them", _NEEDED_IN_PUBLIC),
    ):
        missing = [name for name in names if not described.get(name)]
        found = f"the template's Metadata lacks {', '.join(missing)}" if missing else "in the template's Metadata"
        yield Demand(_REPOSITORY, asks, not missing, found, _METADATA)
    parameters = sorted(template.get("Parameters", ()))
    yield Demand(
        _REPOSITORY,
        "one template for every account",
        None if parameters else False,
        f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters, and is of one install",
        f"{_GUIDE}/serverlessrepo-how-to-publish.html",
    )
    resources = [each for document in (template, *nested) for each in document["Resources"].values()]
    broad = sorted({f"{each['Type']}: {grant}" for each in resources for grant in broad_grants(each)})
    yield Demand(
        _REPOSITORY,
        "no right to write policies of all roles, no AWSLambda_FullAccess",
        not broad,
        "; ".join(broad) or "there is none",
        f"{_GUIDE}/using-aws-sam.html",
    )
    kinds = {each["Type"] for each in resources}
    asked = [name for name, types in _CAPABILITIES.items() if kinds & {*types}]
    yield Demand(
        _REPOSITORY,
        "no roles or policies, to be found without a filter",
        not asked,
        f"whoever deploys acknowledges {', '.join(asked)}" if asked else "there are none",
        f"{_GUIDE}/acknowledging-application-capabilities.html",
    )
    yield Demand(
        _REPOSITORY,
        "resources of supported types only",
        None,
        f"look up these {len(kinds)}: {', '.join(sorted(kinds))}",
        f"{_GUIDE}/list-supported-resources.html",
    )


def broad_grants(resource: Document) -> Iterator[str]:
    """What of a resource the repository refuses to publish."""
    if "AWSLambda_FullAccess" in json.dumps(resource):
        yield "AWSLambda_FullAccess"
    properties = resource.get("Properties", {})
    documents = [properties.get("PolicyDocument"), *(each["PolicyDocument"] for each in properties.get("Policies", ()))]
    for grant in (each for document in documents if document for each in _listed(document["Statement"])):
        if grant.get("Effect") == "Allow" and "*" in _listed(grant.get("Resource")):
            yield from (
                f"{action} on *"
                for action in _listed(grant.get("Action"))
                if isinstance(action, str) and action.lower() in _BROAD
            )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
