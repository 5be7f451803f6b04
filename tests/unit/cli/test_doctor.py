"""`shiplap doctor` on an install that is healthy, and on the same with one thing wrong at a time."""

from __future__ import annotations

from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from shiplap.aws import session
from shiplap.errors import ClusterDenied, ClusterGone, ClusterUnreachable, InvalidInput
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness.nodeclass_status import InstallStatus
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.live.live_manifests import RefusedManifest
from shiplap.node_identities import GRACE_S, KeptIdentities, KeptProfile, KeptRole
from shiplap.settings import ClusterSettings, OtlpSettings, Settings
from shiplap_cli.commands.doctor import account_checks, cluster_checks, doctor
from shiplap_cli.main import run
from tests.commands import Shiplap
from tests.unit.cli.doctored_aws import (
    CLUSTER,
    INSTANCE,
    NODES,
    NOW,
    RBAC,
    TO_INTERNET,
    TO_NAT,
    Answer,
    Aws,
    FreshCatalogues,
    attributes,
    configuration,
    denied,
    entry,
    found,
    healthy,
    live,
    missing,
    objects,
    outputs,
    reviews,
    status,
)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setattr(cluster_checks, "BucketCatalog", FreshCatalogues)
    return Aws()


def instance(install: str) -> dict[str, Any]:
    return {**INSTANCE, "Tags": [{"Key": "shiplap.dev/install", "Value": install}]}


def rule_names(*, TargetArn: str, EventBusName: str) -> dict[str, Any]:  # noqa: N803
    return {"RuleNames": [f"of-{EventBusName}"]}


def described_rule(*, Name: str, EventBusName: str) -> dict[str, Any]:  # noqa: N803
    return {"Arn": f"arn:aws:events:eu-west-1:1:rule/{EventBusName}/{Name}"}


RULES = {"events.list_rule_names_by_target": rule_names, "events.describe_rule": described_rule}
"""Asked only for the fix of a queue's policy."""


def test_a_healthy_install_is_all_ok(aws: Aws) -> None:
    seen = found(aws)
    assert {item.verdict for item in seen} == {"ok"}
    assert {item.check for item in seen} == {
        "credentials",
        "clock",
        "stack",
        "node classes",
        "functions",
        "event sources",
        "queues",
        "catalogue",
        "quotas",
        "network",
        "cluster",
        "node role",
        "installs",
        "endpoint",
        "access",
        "audit log",
        "rbac",
    }
    assert all(not item.fix for item in seen)


INSIDE = {"VpcConfig": {"SubnetIds": ["subnet-1"], "VpcId": "vpc-1"}}


def eks_answer(**changes: Any) -> dict[str, Any]:
    return {"eks.describe_cluster": {"cluster": CLUSTER | changes}}


def endpoint(**changes: Any) -> dict[str, Any]:
    return eks_answer(resourcesVpcConfig=CLUSTER["resourcesVpcConfig"] | changes)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("wrong", "check", "verdict", "says", "mend"),
    [
        (
            {"lambda.get_function_configuration": configuration(State="Failed", StateReason="no subnet")},
            "functions",
            "failed",
            "no subnet",
            "update-function-configuration --function-name shiplap-",
        ),
        (
            {"lambda.get_function_configuration": configuration(State="Pending", LastUpdateStatus="InProgress")},
            "functions",
            "warning",
            "its last update InProgress",
            "under way",
        ),
        (
            {"lambda.get_function_concurrency": {"ReservedConcurrentExecutions": 0}},
            "functions",
            "failed",
            "switched off",
            "delete-function-concurrency --function-name shiplap-",
        ),
        (
            {"lambda.get_alias": {"FunctionVersion": "3"}},
            "functions",
            "warning",
            "version 3 is in service, 4",
            "shiplap install rollback 4",
        ),
        ({"lambda.get_alias": missing("GetAlias")}, "functions", "unknown", "AWS refused", "message"),
        (
            {"lambda.list_event_source_mappings": {"EventSourceMappings": []}},
            "event sources",
            "failed",
            "no queue",
            "-c without",
        ),
        (
            {"lambda.list_event_source_mappings": {"EventSourceMappings": [{"State": "Disabled", "UUID": "u7"}]}},
            "event sources",
            "failed",
            "Disabled",
            "--uuid u7 --enabled",
        ),
        (
            {"sqs.get_queue_attributes": attributes(policy="{}")} | RULES,
            "queues",
            "failed",
            "events.amazonaws.com",
            "arn:aws:events:eu-west-1:1:rule/shiplap/of-shiplap",
        ),
        (
            {
                "sqs.get_queue_attributes": attributes(policy="{}"),
                "events.list_rule_names_by_target": {"RuleNames": []},
            },
            "queues",
            "failed",
            "events.amazonaws.com",
            "no rule sends to it: run `npx aws-cdk deploy --revert-drift`",
        ),
        (
            {
                "sqs.get_queue_attributes": attributes(policy="{}"),
                "events.list_rule_names_by_target": denied("ListRuleNamesByTarget", "events:ListRuleNamesByTarget"),
            },
            "queues",
            "failed",
            "events.amazonaws.com",
            "perform: events:ListRuleNamesByTarget",
        ),
        (
            {"sqs.get_queue_attributes": attributes(redrive="")},
            "queues",
            "failed",
            "no dead letters",
            "deadLetterTargetArn",
        ),
        (
            {"sqs.get_queue_attributes": attributes(dead=3)},
            "queues",
            "failed",
            "3 messages",
            "operations.md#dead-letters",
        ),
        (
            {"ec2.describe_instances": {"Reservations": [{"Instances": [instance("second"), instance("shiplap")]}]}},
            "installs",
            "warning",
            "1 instances of install 'second'",
            "claimRules",
        ),
        ({"service-quotas.get_service_quota": {"Quota": {"Value": 2.0}}}, "quotas", "failed", "2 of 2", "L-1216C47A"),
        ({"service-quotas.get_service_quota": {"Quota": {"Value": 2.4}}}, "quotas", "warning", "2 of 2.4", "increase"),
        (
            {"lambda.get_account_settings": {"AccountLimit": {"ConcurrentExecutions": 10}}},
            "quotas",
            "warning",
            "10 in the account, 50",
            "L-B99A9384",
        ),
        (
            {"lambda.get_function_configuration": configuration(**INSIDE)},
            "network",
            "failed",
            "no endpoints for ec2, eks, sqs, events, ssm, s3, dynamodb",
            "make VPC endpoints for ec2",
        ),
        (
            {
                "lambda.get_function_configuration": configuration(**INSIDE),
                "ec2.describe_route_tables": {"RouteTables": [TO_NAT, TO_INTERNET]},
            },
            "network",
            "failed",
            "no way out",
            "NAT",
        ),
        (eks_answer(status="CREATING"), "cluster", "failed", "CREATING", "wait"),
        ({"eks.describe_cluster": missing("DescribeCluster")}, "cluster", "warning", "EKS knows no", "outside EKS"),
        (
            eks_answer(accessConfig={"authenticationMode": "CONFIG_MAP"}),
            "access",
            "failed",
            "CONFIG_MAP",
            "API_AND_CONFIG",
        ),
        (
            {"eks.describe_access_entry": entry(groups=())},
            "access",
            "failed",
            "role/shiplap-schedule",
            "--kubernetes-groups shiplap",
        ),
        ({"eks.describe_access_entry": entry("")}, "node role", "warning", "only if the ConfigMap", "EC2_LINUX"),
        (
            {"eks.describe_access_entry": entry(groups=("admins",))},
            "access",
            "failed",
            "lacks the group shiplap",
            "--kubernetes-groups admins shiplap",
        ),
        (
            {"eks.describe_access_entry": entry("EC2_WINDOWS")},
            "node role",
            "failed",
            "EC2_WINDOWS, its nodes need EC2_LINUX",
            f"delete-access-entry --cluster-name production --principal-arn {NODES}; then aws eks create-access-entry",
        ),
        (
            {"iam.get_instance_profile": {"InstanceProfile": {"Roles": []}}},
            "node role",
            "unknown",
            "holds no role",
            "fix what",
        ),
        (endpoint(endpointPublicAccess=False), "endpoint", "failed", "endpoint is private", "`vpc`"),
        (endpoint(publicAccessCidrs=["10.0.0.0/8"]), "endpoint", "failed", "only to 10.0.0.0/8", "`vpc`"),
        (
            {
                "lambda.get_function_configuration": configuration(**INSIDE),
                "ec2.describe_route_tables": {"RouteTables": [TO_NAT]},
                **endpoint(vpcId="vpc-2"),
            },
            "endpoint",
            "warning",
            "vpc-2",
            "peered",
        ),
        ({"logs.describe_subscription_filters": missing("D")}, "audit log", "warning", "no log group", "audit"),
        (
            {"logs.describe_subscription_filters": {"subscriptionFilters": []}},
            "audit log",
            "warning",
            "no subscription",
            "--destination-arn arn:aws:lambda:eu-west-1:1:function:shiplap-audit:live",
        ),
        (
            {
                "s3.get_object": objects(
                    status(NodeClassProblem("SubnetsReady", "SubnetsNotFound", "terms match no subnet"))
                )
            },
            "node classes",
            "failed",
            "SubnetsNotFound: terms match no subnet",
            "tags",
        ),
        ({"s3.get_object": objects(InstallStatus())}, "node classes", "failed", "nothing was inspected", "catalog"),
        ({"s3.get_object": objects(status(checked_at=NOW - 7200))}, "node classes", "warning", "120 minutes", "log"),
    ],
)
def test_what_is_wrong_is_found_with_how_to_mend_it(
    aws: Aws, wrong: dict[str, Answer], check: str, verdict: str, says: str, mend: str
) -> None:
    aws.answers |= wrong
    seen = [item for item in found(aws) if item.verdict != "ok"]
    assert {item.check for item in seen} == {check}
    worst = next(item for item in seen if item.verdict == verdict)
    assert says in worst.says
    assert mend in worst.fix
    assert worst.fix


def test_an_old_catalogue_is_found(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FreshCatalogues, "age_s", 5 * 3600.0)
    (item,) = [item for item in found(aws) if item.verdict != "ok"]
    assert (item.check, item.verdict, item.says) == ("catalogue", "failed", "was refreshed 5.0 hours ago")


@pytest.mark.parametrize(("skew", "verdict"), [(10, "ok"), (-45, "warning"), (400, "failed")])
def test_a_clock_that_is_off_is_found(aws: Aws, skew: int, verdict: str) -> None:
    headers = aws.answers["sts.get_caller_identity"]["ResponseMetadata"]["HTTPHeaders"]
    headers["date"] = formatdate(NOW - skew, usegmt=True)
    (item,) = [item for item in found(aws) if item.check == "clock"]
    assert item.verdict == verdict
    assert ("behind" in item.says) == (skew < 0)


def test_functions_inside_a_vpc_need_nat_or_every_endpoint(aws: Aws) -> None:
    aws.answers["lambda.get_function_configuration"] = configuration(**INSIDE)
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": [TO_NAT]}
    assert [item.verdict for item in found(aws) if item.check == "network"] == ["ok"]
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": [TO_INTERNET]}
    names = ("ec2", "eks", "sqs", "events", "ssm", "s3", "dynamodb")
    made = [{"ServiceName": f"com.amazonaws.eu-west-1.{name}"} for name in names]
    aws.answers["ec2.describe_vpc_endpoints"] = {"VpcEndpoints": made}
    assert [item.verdict for item in found(aws) if item.check == "network"] == ["ok"]
    aws.answers["ec2.describe_vpc_endpoints"] = {"VpcEndpoints": made[1:]}
    (item,) = [item for item in found(aws) if item.check == "network"]
    assert item.says == "no way out, and no endpoints for ec2"


def test_a_deployed_install_needs_endpoints_for_what_its_settings_ask_for(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are in a layer of the function; `other` is a cluster that functions of another network serve."""
    blue = ClusterSettings(name="production", region="eu-west-1")
    other = ClusterSettings(name="other", region="eu-west-1", network="away", zonal_shift=True)
    settings = Settings((blue, other), otlp=OtlpSettings("https://collector.example/v1/metrics", "arn:secret"))
    asked: list[str] = []

    def settings_in_layers(_client: object, function: str, layers: object) -> Settings:
        asked.append(function)
        assert layers == [{"Arn": "arn:layer"}]
        return settings

    monkeypatch.setattr(account_checks, "settings_in_layers", settings_in_layers)
    inside = configuration(**INSIDE, Layers=[{"Arn": "arn:layer"}])
    aws.answers["lambda.get_function_configuration"] = inside
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": [TO_INTERNET]}
    names = ("ec2", "eks", "sqs", "events", "ssm", "s3", "dynamodb")
    made = [{"ServiceName": f"com.amazonaws.eu-west-1.{name}"} for name in names]
    aws.answers["ec2.describe_vpc_endpoints"] = {"VpcEndpoints": made}

    secret, collector = [item for item in found(aws) if item.check == "network"]

    assert (secret.verdict, secret.says) == ("failed", "no way out, and no endpoints for secretsmanager")
    assert (collector.verdict, "collector.example" in collector.says) == ("warning", True)
    assert asked == ["shiplap-schedule"]


@pytest.mark.parametrize("operation", [name for name in healthy() if not name.startswith("cloudformation")])
def test_a_missing_permission_is_named_and_the_other_checks_go_on(aws: Aws, operation: str) -> None:
    """One refusal never ends the whole: whatever does not need it is looked at all the same."""
    service, _, name = operation.partition(".")
    action = f"{service}:{''.join(part.capitalize() for part in name.split('_'))}"
    needed = {item.check for item in found(aws)}
    aws.answers["lambda.get_function_configuration"] = configuration(**INSIDE)
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": [TO_NAT]}
    aws.answers[operation] = denied("X", action)

    seen = found(aws, only="production")

    refused = [item for item in seen if item.verdict == "unknown"]
    assert refused
    assert needed - {item.check for item in seen} <= {"clock", "endpoint", "access", "node role"}
    if service != "s3":  # the store's errors have words of their own
        assert all(action in item.says and action in item.fix for item in refused)


@pytest.mark.parametrize("first", ["", "Amber"])
def test_clusters_are_entered_by_the_functions_of_their_network(aws: Aws, first: str) -> None:
    """Each network has functions and queues of its own; their names end in the network's."""
    listed = outputs()
    own = {
        name: value
        for name, value in listed.items()
        if not name.startswith(("Catalog", "Interrupt", "Audit", "Bucket", "Bus"))
    }
    common = {name: value for name, value in listed.items() if name not in own}
    for network in (first, "Blue"):
        for name, value in own.items():
            (ending,) = [item for item in ("Function", "QueueUrl", "DeadLettersUrl") if name.endswith(item)]
            suffix = f"-{network.lower()}" if network else ""
            common[name.removesuffix(ending) + network + ending] = (
                value.removesuffix("-dead") + suffix + ("-dead" if value.endswith("-dead") else "")
            )
    listed_now = [{"OutputKey": name, "OutputValue": value} for name, value in common.items()]
    stack = {"Outputs": listed_now, "StackStatus": "UPDATE_COMPLETE"}
    aws.answers["cloudformation.describe_stacks"] = {"Stacks": [stack]}
    asked: set[str] = set()

    def of_blue(*, clusterName: str, principalArn: str) -> dict[str, Any]:  # noqa: N803
        if principalArn == NODES:
            return {"accessEntry": {"type": "EC2_LINUX"}}
        if not principalArn.endswith("-blue"):
            raise missing("DescribeAccessEntry")
        asked.add(principalArn.rpartition("/")[2])
        return {"accessEntry": {"kubernetesGroups": ["shiplap"]}}

    aws.answers["eks.describe_access_entry"] = of_blue
    seen = found(aws)

    assert {item.verdict for item in seen} == {"ok"}
    assert asked == {f"shiplap-{name}-blue" for name in ("schedule", "lifecycle", "disrupt", "watch")}
    assert {item.subject for item in seen if item.check == "event sources"} == {
        f"schedule{first.lower()}",
        f"lifecycle{first.lower()}",
        "scheduleblue",
        "lifecycleblue",
        "interrupt",
    }


def test_a_finding_is_one_line_whatever_an_answer_says(aws: Aws) -> None:
    page = {"Error": {"Code": "500", "Message": "<!doctype html>\n<title>Internal Server Error</title>\n" * 100}}
    aws.answers["eks.describe_cluster"] = ClientError(page, "DescribeCluster")
    (item,) = [item for item in found(aws) if item.verdict != "ok"]

    assert item.says.startswith("AWS refused: An error occurred (500) when calling the DescribeCluster operation")
    assert "\n" not in item.says
    assert len(item.says) < 400


def test_without_an_answer_the_network_is_pointed_at(aws: Aws) -> None:
    aws.answers["eks.describe_cluster"] = EndpointConnectionError(endpoint_url="https://eks")
    (item,) = [item for item in found(aws) if item.verdict != "ok"]
    assert (item.verdict, "AWS_REGION" in item.fix) == ("unknown", True)


# RBAC


def test_rights_that_a_cluster_does_not_grant_are_named(aws: Aws) -> None:
    (item,) = [item for item in found(aws, reviews("patch nodes", "create pods/eviction")) if item.verdict != "ok"]
    assert item.says == "the group shiplap may not create pods/eviction, patch nodes"
    assert "kubectl apply -f docs/rbac.yaml" in item.fix


@pytest.mark.parametrize("there", ["", "# of an earlier version"])
def test_the_manifest_to_apply_is_one_that_the_machine_has_and_of_this_version(
    aws: Aws, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if there:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "rbac.yaml").write_text(there)
    (item,) = [item for item in found(aws, reviews("patch nodes")) if item.verdict != "ok"]
    assert Path(item.fix.rpartition(" -f ")[2]).read_bytes() == RBAC.read_bytes()


def test_the_functions_group_is_asked_for_and_with_as_self_whoever_asks(aws: Aws) -> None:
    asked: list[dict[str, Any]] = []
    found(aws, reviews(asked=asked))
    assert len(asked) == len(cluster_checks.permissions_of(RBAC)) > 20
    assert {(item["kind"], item["spec"]["groups"][0]) for item in asked} == {("SubjectAccessReview", "shiplap")}
    asked.clear()
    found(aws, reviews(asked=asked), myself=True)
    assert {item["kind"] for item in asked} == {"SelfSubjectAccessReview"}
    assert all("groups" not in item["spec"] for item in asked)


@pytest.mark.parametrize(
    ("error", "verdict", "mend"),
    [
        (ClusterDenied("POST: forbidden", status=403), "unknown", "cluster admin"),
        (ClusterUnreachable("no answer"), "unknown", "inside its VPC"),
        (ClusterGone("EKS knows none"), "warning", "--context"),
        (InvalidInput("kubeconfig", "no such context"), "unknown", "fix what the message names"),
    ],
)
def test_a_cluster_that_cannot_be_asked_says_why(aws: Aws, error: Exception, verdict: str, mend: str) -> None:
    def entering(_cluster: str, _region: str) -> cluster_checks.Ask:
        raise error

    (item,) = [item for item in found(aws, entering) if item.verdict != "ok"]
    assert (item.check, item.verdict) == ("rbac", verdict)
    assert mend in item.fix


# Manifests of the cluster


def test_manifests_of_a_cluster_need_more_rights(aws: Aws) -> None:
    aws.answers["s3.get_object"] = live()
    asked: list[dict[str, Any]] = []
    results = found(aws, reviews(asked=asked))
    assert [item.says for item in results if item.check == "manifests"] == ["2 objects of the API server can be used"]
    more = cluster_checks.permissions_of(RBAC.parent / cluster_checks.LIVE_RBAC)
    assert len(asked) == len(cluster_checks.permissions_of(RBAC)) + len(more)
    named = {item["spec"]["resourceAttributes"].get("name", "") for item in asked}
    assert named == {
        "",
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "ec2nodeclasses.karpenter.k8s.aws",
        "karpenter-leader-election",
    }
    (item,) = [item for item in found(aws, reviews("list nodepools")) if item.verdict != "ok"]
    assert "kubectl apply -f docs/rbac-cluster-manifests.yaml" in item.fix


def test_a_manifest_that_is_not_used_says_why(aws: Aws) -> None:
    reason = "spec.role: other is not allowed in this cluster"
    aws.answers["s3.get_object"] = live(RefusedManifest("EC2NodeClass", "default", reasons=(reason,)))
    (item,) = [item for item in found(aws) if item.verdict != "ok"]
    assert (item.check, item.verdict) == ("manifests", "failed")
    assert item.says == f"EC2NodeClass default is not used: {reason}"
    assert item.fix == "kubectl edit ec2nodeclass default"


# What is kept for nodes that still run


def test_what_is_kept_is_listed_with_its_carriers_and_what_is_not_ended_with_a_remedy(aws: Aws) -> None:
    names = ("i-1", "i-2", "i-3")
    profiles = (
        KeptProfile("carried", "production", "nodes", NOW - 90 * GRACE_S, 50, names),
        KeptProfile("fresh", "staging", "nodes", NOW - 60),
        KeptProfile("stuck", "staging", "nodes", NOW - 2 * GRACE_S),
    )
    roles = (KeptRole("own", "production", ("theirs",)), KeptRole("young", "production"))
    aws.answers["s3.get_object"] = objects(status(), kept=KeptIdentities(profiles, roles))
    seen = [item for item in found(aws) if item.check == "kept identities"]
    says = {item.subject + str(number): (item.verdict, item.says) for number, item in enumerate(seen)}
    assert says["production/nodes0"] == (
        "ok",
        "instance profile carried is no longer in the settings, and kept for 50 instances: i-1, i-2, i-3",
    )
    assert says["staging/nodes1"][0] == "ok"
    assert f"ends after {rfc3339(NOW - 60 + GRACE_S)}" in says["staging/nodes1"][1]
    assert says["staging/nodes2"][0] == "warning"
    assert "instance profiles of others: theirs" in says["production/own3"][1]
    assert "ends a day after it was made" in says["production/young4"][1]
    assert [item.fix.partition(" in the log")[0] for item in seen if item.fix] == [
        'look for "identity of nodes not ended"'
    ]


# The command


def test_exit_codes_and_formats(aws: Aws, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap) -> None:
    monkeypatch.setattr(doctor, "clients", lambda: aws.client)
    monkeypatch.setattr(doctor, "_cluster_asker", lambda name, region, **_: reviews()(name, region))
    monkeypatch.setattr(doctor.time, "time", lambda: NOW)
    monkeypatch.setattr(doctor, "_deployed_settings", lambda *_: Settings(()))
    shown = shiplap.json("doctor")
    assert shown["verdicts"] == {"ok": len(shown["findings"]), "warning": 0, "failed": 0, "unknown": 0}
    assert set(shown["findings"][0]) == {"check", "subject", "verdict", "says", "mend", "commands"}
    assert "verdict: ok" in shiplap("doctor", "-o", "yaml")
    aws.answers["lambda.get_alias"] = {"FunctionVersion": "3"}
    assert "version 3 is in service" in shiplap("doctor"), "a warning is no failure"
    aws.answers["sqs.get_queue_attributes"] = attributes(dead=1)
    shiplap("doctor", code=1)
    aws.answers["sqs.get_queue_attributes"] = denied("GetQueueAttributes", "sqs:GetQueueAttributes")
    assert "not permitted" in shiplap("doctor", code=1)


@pytest.mark.parametrize(
    ("answer", "arguments", "code", "says"),
    [
        ({"Stacks": [{"Outputs": []}]}, [], 2, "is not an install of Shiplap"),
        (
            ClientError({"Error": {"Code": "ValidationError", "Message": "Stack X does not exist"}}, "DescribeStacks"),
            ["--stack", "X"],
            2,
            "there is no stack 'X'",
        ),
        (denied("DescribeStacks"), [], 2, "could not look up stack"),
        (None, ["--context", "c"], 2, "name it with --cluster"),
        (None, ["--rbac", "nowhere.yaml"], 2, "the RBAC manifest cannot be read"),
    ],
)
def test_bad_input_is_told_in_one_line(
    aws: Aws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Answer,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.setattr(doctor, "clients", lambda: aws.client)
    if answer is not None:
        aws.answers["cloudformation.describe_stacks"] = answer
    assert run(["doctor", *arguments]) == code
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_without_a_region_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    session.session.cache_clear()
    assert run(["doctor"]) == 2
    said = capsys.readouterr().err
    assert "set AWS_REGION" in said
    assert said.count("\n") == 1
    session.session.cache_clear()
