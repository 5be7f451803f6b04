"""Shiplap reports before a deployment whatever AWS would refuse: one line each, with the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import InvalidManifests, ShiplapError
from tests.infra.synthesised import INSTALL

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk import quotas, synthesis
from shiplap_cdk.install_document import read

pytestmark = pytest.mark.thorough


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": properties}


def policy(characters: int, *, managed: bool = False) -> dict[str, Any]:
    kind = "ManagedPolicy" if managed else "Policy"
    return resource(f"AWS::IAM::{kind}", PolicyDocument={"Statement": "x" * characters}, Roles=[{"Ref": "Role"}])


def permission(number: int) -> dict[str, Any]:
    arn = f"arn:aws:logs:eu-west-1:123456789012:log-group:/aws/eks/{number:0100d}/cluster:*"
    return resource("AWS::Lambda::Permission", FunctionName={"Ref": "Audit"}, SourceArn=arn)


def dashboard(widgets: int, metrics: int) -> dict[str, Any]:
    body = {"widgets": [{"properties": {"metrics": [["a", "b"]] * metrics}}] * widgets}
    return resource("AWS::CloudWatch::Dashboard", DashboardBody=json.dumps(body))


def rule(characters: int = 1, targets: int = 1) -> dict[str, Any]:
    bus = {"Ref": "Bus"}
    return resource(
        "AWS::Events::Rule", EventBusName=bus, EventPattern={"detail": "x" * characters}, Targets=[{}] * targets
    )


def mapping(at_once: int) -> dict[str, Any]:
    return resource("AWS::Lambda::EventSourceMapping", ScalingConfig={"MaximumConcurrency": at_once})


def queue_policy(statements: int, *, characters: int = 10, conditions: int = 1) -> dict[str, Any]:
    condition = {"ArnEquals": {"aws:SourceArn": "x" * characters}} if conditions else {}
    statement = {"Effect": "Allow", **({"Condition": condition} if condition else {})}
    return resource("AWS::SQS::QueuePolicy", PolicyDocument={"Statement": [statement] * statements})


def of(*resources: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"Resources": {f"R{number}": item for number, item in enumerate(resources)}, **sections}


NOTHING = resource("AWS::CloudFormation::WaitConditionHandle")
FUNCTION = resource("AWS::Lambda::Function", Environment={"Variables": {"NAME": "x" * 4_100}})
SCHEDULE = resource("AWS::Scheduler::Schedule", Target={"Input": "x" * 262_145})
TOO_MUCH = {
    "resources in the template of Shiplap": [of(*[NOTHING] * 501)],
    "resources in all templates": [of(*[NOTHING] * 500)] * 5 + [of(NOTHING)],
    "parameters in the template of": [of(Parameters=dict.fromkeys(map(str, range(201))))],
    "outputs in the template of": [of(Outputs=dict.fromkeys(map(str, range(201))))],
    "characters of the inline policies of Role": [of(policy(5_200), policy(5_200))],
    "characters of the managed policy R0": [of(policy(6_200, managed=True))],
    "policies attached to Role": [of(*[policy(10, managed=True)] * 11)],
    "bytes of the resource policy of Audit": [of(*[permission(number) for number in range(60)])],
    "bytes of environment of R0": [of(FUNCTION)],
    "invocations at once": [of(mapping(600), mapping(401))],
    "rules of the install's event bus": [of(*[rule()] * 60), of(*[rule()] * 41)],
    "characters of the pattern of R0": [of(rule(2_049))],
    "targets of R0": [of(rule(targets=6))],
    "bytes of the queue policy R0": [of(queue_policy(2, characters=4_100))],
    "statements of the queue policy R0": [of(queue_policy(21, conditions=0))],
    "conditions of the queue policy R0": [of(queue_policy(5)), of(queue_policy(11))],
    "bytes of input of R0": [of(SCHEDULE)],
    "widgets of R0": [of(dashboard(501, 1))],
    "metrics of a widget of R0": [of(dashboard(1, 501))],
    "metrics of R0": [of(dashboard(6, 500))],
}


def named(templates: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {"Shiplap" if number == 0 else f"Nested{number}": each for number, each in enumerate(templates)}


@pytest.mark.parametrize(("what", "templates"), TOO_MUCH.items(), ids=list(TOO_MUCH))
def test_each_quota_that_is_exceeded_is_named_with_figures_and_what_to_do(
    what: str, templates: list[dict[str, Any]]
) -> None:
    (reason,) = quotas.exceeded(named(templates))

    assert reason.startswith(what)
    assert " would be " in reason
    assert ", AWS allows " in reason
    assert ": " in reason


def test_nothing_is_said_of_what_just_fits() -> None:
    fits = [
        of(*[NOTHING] * 499),
        of(policy(5_080), policy(5_080)),
        of(*[policy(6_100, managed=True)] * 10),
        of(*[rule(2_000, 5)] * 100),
        of(mapping(1_000), dashboard(5, 500)),
        of(queue_policy(10, characters=700), queue_policy(20, conditions=0)),
    ]

    assert list(quotas.exceeded(named(fits))) == []


def test_a_template_counts_as_it_is_uploaded_with_its_white_space(tmp_path: Path) -> None:
    text = json.dumps({"Resources": {f"R{number}": NOTHING for number in range(9_000)}}, indent=1)
    for name, size in (("Shiplap", 1_000_000), ("Nested", 1_000_001)):
        (tmp_path / name).write_text(text + " " * (size - len(text)))

    (reason,) = quotas.too_long({name: tmp_path / name for name in ("Shiplap", "Nested")})

    assert len(json.dumps(json.loads(text), separators=(",", ":"))) < 800_000
    assert reason.startswith("bytes of the template of Nested would be 1,000,001, AWS allows 1,000,000: ")


def test_references_count_as_long_as_what_they_refer_to_may_be() -> None:
    arns = [{"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":sqs:", {"Fn::GetAtt": ["Queue", "Arn"]}]]}] * 45
    listed = resource("AWS::IAM::ManagedPolicy", PolicyDocument={"Resource": arns}, Roles=[{"Ref": "Role"}])

    (reason,) = quotas.exceeded({"Shiplap": of(listed)})

    assert "managed policy" in reason


def test_layers_that_are_too_large_together_are_told_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "settings.json").open("wb") as file:
        file.truncate(251 * 1024**2)

    (reason,) = quotas.too_large({"library": tmp_path / "small", "settings": tmp_path / "large"})

    assert reason.startswith("MiB of layers, unzipped (library 0, settings 251), would be 251, AWS allows 250")


def test_a_stack_beyond_a_quota_is_refused_with_file_line_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "RESOURCES", 100)

    with pytest.raises(InvalidManifests) as refused:
        synthesis.synthesise(read(INSTALL), local=True, outdir=str(tmp_path / "cdk.out"))

    (problem,) = refused.value.problems
    assert str(problem).startswith(f"{INSTALL}:6: clusters: resources in the template of Shiplap would be ")


def test_too_many_networks_are_refused_before_the_cdk_reports_on_its_templates(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifests = str(INSTALL.parent / "manifests" / "edge")
    vpc = {"subnets": ["subnet-00000001"], "securityGroups": ["sg-00000001"]}
    clusters = [
        {"name": f"c{number}", "manifests": manifests, "vpc": {**vpc, "name": f"n{number}"} if number else vpc}
        for number in range(26)
    ]
    (tmp_path / "shiplap.yaml").write_text(json.dumps({"region": "eu-west-1", "clusters": clusters}))

    with pytest.raises(InvalidManifests) as refused:
        synthesis.synthesise(read(tmp_path / "shiplap.yaml"), local=True, outdir=str(tmp_path / "cdk.out"))

    problems = [str(problem) for problem in refused.value.problems]
    assert all(problem.startswith(f"{tmp_path / 'shiplap.yaml'}:1: clusters: ") for problem in problems)
    assert any("outputs in the template of Shiplap would be 2" in problem for problem in problems)
    assert "CloudFormation Validate" not in capfd.readouterr().err


@pytest.mark.usefixtures("layers_built")
def test_what_the_cdk_itself_refuses_is_one_line(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "cdk.out"
    not_a_folder.write_text("")

    with pytest.raises(ShiplapError, match=r"^the CDK refuses the stack: [^\n]+$"):
        synthesis.synthesise(read(INSTALL), local=True, outdir=str(not_a_folder))


def test_the_bytes_that_are_uploaded_are_held_against_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cdk.out"
    synthesis.synthesise(read(INSTALL), local=True, outdir=str(folder))
    uploaded = (folder / "Shiplap.template.json").stat().st_size
    packed = len(json.dumps(json.loads((folder / "Shiplap.template.json").read_text()), separators=(",", ":")))
    assert packed < uploaded - 1

    monkeypatch.setattr(quotas, "TEMPLATE_BYTES", uploaded - 1)
    with pytest.raises(InvalidManifests, match=f"bytes of the template of Shiplap would be {uploaded:,}"):
        synthesis.synthesise(read(INSTALL), local=True, outdir=str(folder))
