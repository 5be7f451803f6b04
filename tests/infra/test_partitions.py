"""One install in a Region of each partition: its templates have all that the partition knows, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shiplap import regions
from tests.aws_rules import installs
from tests.aws_rules.cfn_lint import brief, findings

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from aws_cdk import Tags

from shiplap_cdk.install_document import read
from shiplap_cdk.region_differences import Feature, ec2_principals, gap, left_out
from shiplap_cdk.synthesis import build

pytestmark = pytest.mark.thorough

HOME = "eu-west-1"
"""A Region that lacks nothing."""

ELSEWHERE = (
    "us-gov-west-1",
    "cn-north-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "eu-isoe-west-1",
    "us-isof-south-1",
    "eusc-de-east-1",
    "mx-central-1",
    "ap-east-2",
)
"""A Region of each other partition, and two of partition `aws` that lack something."""

_MAPPING, _FUNCTION = "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Function"
_SERVICE = re.compile(r"[a-z]+\.amazonaws\.com")

Templates = Mapping[str, Mapping[str, Any]]


def written_for(region: str, text: str) -> str:
    """Return a text that was written for Ireland as a text for another Region: ARNs of its partition."""
    return text.replace(HOME, region).replace("arn:aws:", f"arn:{regions.partition_of(region)}:")


def everything(region: str, folder: Path, *, tracing: bool = True) -> Path:
    """An install with each option that the Region has, of two clusters, one of them outside EKS."""
    for path in installs.MANIFESTS.rglob("*.yaml"):
        copy = folder / path.relative_to(installs.MANIFESTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(written_for(region, path.read_text()))
    document = json.loads(written_for(region, json.dumps(installs.PRIVATE)))
    document |= {
        "snapStart": gap(region, Feature.SNAP_START) is None,
        "tracing": tracing and gap(region, Feature.TRACING) is None,
    }
    for cluster in document["clusters"]:
        cluster["manifests"] = str(folder / cluster["name"])
    return installs.write(folder, document)


def synthesised(region: str, folder: Path, *, tracing: bool = True) -> Templates:
    app = build(
        read(everything(region, folder, tracing=tracing)),
        outdir=str(folder / "cdk.out"),
        builtin_cloud_formation_validation=False,
    )
    Tags.of(app).add("team", "platform")
    assembly = Path(app.synth().directory)
    return {path.name: json.loads(path.read_text()) for path in sorted(assembly.glob("*.template.json"))}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return synthesised(HOME, tmp_path_factory.mktemp(HOME))


@pytest.fixture(scope="module", params=ELSEWHERE)
def region(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(region: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(region)


@pytest.fixture(scope="module")
def templates(region: str, folder: Path) -> Templates:
    return synthesised(region, folder)


def properties(templates: Templates, kind: str) -> list[dict[str, Any]]:
    found = [item for template in templates.values() for item in template["Resources"].values() if item["Type"] == kind]
    assert found
    return [item["Properties"] for item in found]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_a_template_has_what_its_region_knows_and_nothing_else(templates: Templates, region: str) -> None:
    lacking = {feature for feature in Feature if gap(region, feature)}
    functions, mappings = properties(templates, _FUNCTION), properties(templates, _MAPPING)

    assert lacking
    assert all(("Tags" in item) == (Feature.MAPPING_TAGS not in lacking) for item in mappings)
    assert any("RecursiveLoop" in item for item in functions) == (Feature.RECURSIVE_LOOP not in lacking)
    assert all(("SnapStart" in item) == (Feature.SNAP_START not in lacking) for item in functions)
    assert all(("TracingConfig" in item) == (Feature.TRACING not in lacking) for item in functions)
    assert ("xray:PutTraceSegments" in set(texts(templates))) == (Feature.TRACING not in lacking)
    assert all({"Key": "team", "Value": "platform"} in item["Tags"] for item in functions)


def test_cloudformation_knows_each_resource_and_property_in_the_region(
    templates: Templates, region: str, folder: Path
) -> None:
    assert brief(findings([folder / "cdk.out" / name for name in templates], region)) == []


def _without(templates: Templates, region: str) -> str:
    """Templates as text, without what some Region lacks and without what tells Regions apart."""
    resources = [
        (name, key, item) for name, template in templates.items() for key, item in sorted(template["Resources"].items())
    ]
    for _, _, item in resources:
        if item["Type"] == _MAPPING:
            item["Properties"].pop("Tags", None)
        if item["Type"] == _FUNCTION:
            for each in ("RecursiveLoop", "SnapStart", "TracingConfig"):
                item["Properties"].pop(each, None)
        if item["Type"] == "AWS::Lambda::LayerVersion":
            item["Properties"].pop("Content")
        for policy in ("PolicyDocument", "AssumeRolePolicyDocument"):
            if statements := item.get("Properties", {}).get(policy, {}).get("Statement"):
                statements[:] = [each for each in statements if each.get("Sid") != "Trace"]
    text = json.dumps(resources).replace(f"arn:{regions.partition_of(region)}:", "arn:aws:").replace(region, HOME)
    text = text.replace(json.dumps(list(ec2_principals(region))), '"ec2.amazonaws.com"')
    return re.sub(r"CurrentVersion[0-9A-F]{8}[0-9a-f]{32}|[0-9a-f]{64}", "", text)


def test_all_else_is_the_same_everywhere(templates: Templates, home: Templates, region: str, tmp_path: Path) -> None:
    if gap(region, Feature.TRACING):  # the CDK parts a role's policies by their length
        home = synthesised(HOME, tmp_path, tracing=False)
    copies = [json.loads(json.dumps(each)) for each in (templates, home)]

    assert _without(copies[0], region) == _without(copies[1], HOME)


def test_arns_and_hosts_are_those_of_the_partition(templates: Templates, region: str) -> None:
    partition, written = regions.partition_of(region), set(texts(templates))

    arns = {arn for text in written for arn in re.findall(r"arn:(aws[a-z-]*):", text)}
    assert arns <= {partition}
    domains = [text for text in written if "amazonaws" in text or regions.dns_suffix(region) in text]
    assert set(ec2_principals(region)) <= set(domains)
    assert all(_SERVICE.fullmatch(text) for text in set(domains) - set(ec2_principals(region)))


def test_what_is_left_out_is_told_once_and_is_no_warning(templates: Templates, region: str, folder: Path) -> None:
    written = json.loads((folder / "cdk.out" / "Shiplap.metadata.json").read_text())
    told = [entry for entries in written.values() for entry in entries if "aws:cdk:" in entry["type"]]
    lines = [entry["data"] for entry in told if entry["type"] == "aws:cdk:info"]

    assert templates
    assert [line.partition(" [ack")[0] for line in lines] == [line for _, line in left_out(region)]
    assert [entry for entry in told if entry["type"] == "aws:cdk:warning"] == [], "`--strict` fails for these"


def test_a_region_that_lacks_nothing_says_nothing(home: Templates) -> None:
    assert not list(left_out(HOME))
    assert all("Tags" in item for item in properties(home, _MAPPING))
    assert sum(item.get("RecursiveLoop") == "Allow" for item in properties(home, _FUNCTION)) == 1
    assert all(item["SnapStart"] == {"ApplyOn": "PublishedVersions"} for item in properties(home, _FUNCTION))
    (nodes,) = [item for item in properties(home, "AWS::IAM::Role") if "Path" in item]
    (trusted,) = nodes["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Principal"] == {"Service": "ec2.amazonaws.com"}


@pytest.mark.parametrize(
    ("region", "names"),
    [
        ("us-gov-east-1", ["ec2.amazonaws.com"]),
        ("cn-northwest-1", ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]),
        ("us-iso-west-1", ["ec2.amazonaws.com", "ec2.c2s.ic.gov"]),
        ("us-isob-west-1", ["ec2.amazonaws.com", "ec2.sc2s.sgov.gov"]),
        ("eusc-de-east-1", ["ec2.amazonaws.com"]),
    ],
)
def test_nodes_take_their_role_under_each_name_that_ec2_has(region: str, names: list[str]) -> None:
    assert list(ec2_principals(region)) == names
