"""Requests to EC2 and its answers, each as a whole: a part that is left out launches something else."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError
from msgspec import structs

from shiplap.aws import tags
from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2.launch_dry_run import dry_run_launch, run_instances_parameters
from shiplap.aws.ec2.launch_templates import LaunchTemplates
from shiplap.aws.ec2.request_pace import INSTANCE_LIMITS, LIMITS, paced
from shiplap.aws.ec2_errors import TEMPLATE_GONE
from shiplap.errors import AwsError
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.instances.offerings.remedies import with_remedy
from shiplap.ports import FleetRequest, Instance, OfferingFailure
from tests.builders.claims import with_fields
from tests.unit.aws.fleet_parameters import RESOLVED, override, parameters_of, request

INSTALL = "own"


def of(wanted: FleetRequest) -> dict[str, Any]:
    return fleet_requests.parameters(wanted, fleet_requests.fleet_configs(wanted, INSTALL), wanted.token, INSTALL)


def tagged(**more: str) -> list[dict[str, str]]:
    own = {
        "shiplap.dev/install": INSTALL,
        "shiplap.dev/cluster": "demo",
        "kubernetes.io/cluster/demo": "owned",
        "shiplap.dev/nodepool": "default",
        "shiplap.dev/ec2nodeclass": "default",
        "shiplap.dev/launch": "t",
        **{key.replace("__", "/").replace("_", "."): value for key, value in more.items()},
    }
    return [{"Key": key, "Value": own[key]} for key in sorted(own)]


def test_a_fleet_of_one_on_demand_instance() -> None:
    wanted = request(override("m5.large", "a", 0.5), override("c5.large", "b", 0.25))
    (config,) = fleet_requests.fleet_configs(wanted, INSTALL)
    own = tagged(Name="default-1", shiplap_dev__nodeclaim="default-1")
    assert of(wanted) == {
        "Type": "instant",
        "ClientToken": "t",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": config.template.name, "Version": "$Latest"},
                "Overrides": [
                    {
                        "InstanceType": "c5.large",
                        "SubnetId": "subnet-b",
                        "AvailabilityZone": "b",
                        "ImageId": "ami-1",
                        "Priority": 0,
                    },
                    {
                        "InstanceType": "m5.large",
                        "SubnetId": "subnet-a2",
                        "AvailabilityZone": "a",
                        "ImageId": "ami-1",
                        "Priority": 1,
                    },
                ],
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": own} for kind in ("instance", "volume", "fleet")],
        "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
    }


def test_a_fleet_of_several_has_the_name_of_its_pool_or_of_its_class() -> None:
    one = request()
    two = structs.replace(one, claims=(*one.claims, structs.replace(one.claim, name="default-2")), count=2)
    assert of(two)["TagSpecifications"][0]["Tags"] == tagged(Name="default")
    for pool, name in (("p", "p"), ("", "c")):
        claims = tuple(with_fields(item, node_pool=pool, node_class="c") for item in two.claims)
        assert fleet_requests.launch_tags(structs.replace(two, claims=claims), INSTALL)["Name"] == name
    assert of(two)["TargetCapacitySpecification"]["TotalTargetCapacity"] == 2


@pytest.mark.parametrize(
    ("held", "target", "options"),
    [
        (CapacityReservation("cr-1", "m5.large", "a"), "on-demand", {"OnDemandOptions"}),
        (CapacityReservation("cr-1", "m5.large", "a", type="capacity-block"), "capacity-block", set()),
        (
            CapacityReservation("cr-1", "m5.large", "a", interruptible=True),
            "reserved-capacity",
            {"ReservedCapacityOptions"},
        ),
        (CapacityReservation("cr-2", "m5.large", "a", type="capacity-block"), "on-demand", {"OnDemandOptions"}),
    ],
    ids=["ordinary", "block", "interruptible", "another one"],
)
def test_what_a_reservation_is_bought_as(held: CapacityReservation, target: str, options: set[str]) -> None:
    wanted = request(
        override(reservation="cr-1"),
        capacity_type="reserved",
        resolved=structs.replace(RESOLVED, capacity_reservations=(held,)),
    )
    asked = of(wanted)
    assert asked["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    assert {key for key in asked if key.endswith("Options")} == options
    if target == "reserved-capacity":
        assert asked["ReservedCapacityOptions"] == {"ReservationTypes": ["interruptible-capacity-reservation"]}


def test_what_a_fleet_gave_is_known_as_ec2_will_describe_it() -> None:
    wanted = request(override("m5.large", "a"), override("c5.large", "b"))
    configs = fleet_requests.fleet_configs(wanted)
    told = {"InstanceType": "c5.large", "SubnetId": "subnet-b", "AvailabilityZone": "b", "ImageId": "ami-2"}
    answer: Any = {
        "Instances": [
            {"InstanceIds": ["i-2"], "InstanceType": "m5.large"},
            {"InstanceIds": ["i-3", "i-1"], "LaunchTemplateAndOverrides": {"Overrides": told}},
            {"InstanceIds": ["i-4"], "LaunchTemplateAndOverrides": {"Overrides": {"SubnetId": "subnet-a2"}}},
        ]
    }
    found = fleet_requests.instances_of(wanted, configs, answer, 17.0, INSTALL)
    assert [(item.id, item.instance_type, item.zone) for item in found] == [
        ("i-1", "c5.large", "b"),
        ("i-2", "m5.large", ""),
        ("i-3", "c5.large", "b"),
        ("i-4", "", "a"),
    ]
    assert found[0] == Instance(
        id="i-1",
        instance_type="c5.large",
        zone="b",
        capacity_type="on-demand",
        ami="ami-2",
        state="pending",
        launched_at=17.0,
        cluster="demo",
        claim="default-1",
        node_pool="default",
        launch="t",
        install=INSTALL,
        subnet="subnet-b",
        security_groups=("sg-1",),
    )


def test_what_a_fleet_gave_of_a_reservation_is_of_it() -> None:
    wanted = request(override(reservation="cr-1"), capacity_type="reserved")
    answer: Any = {"Instances": [{"InstanceIds": ["i-1"], "InstanceType": "m5.large"}]}
    (found,) = fleet_requests.instances_of(wanted, fleet_requests.fleet_configs(wanted), answer, 17.0, INSTALL)
    assert (found.capacity_type, found.reservation) == ("reserved", "cr-1")


@pytest.mark.parametrize(
    ("codes", "launched", "gone"),
    [
        (TEMPLATE_GONE, False, True),
        (TEMPLATE_GONE[:1], False, True),
        (TEMPLATE_GONE, True, False),
        ((*TEMPLATE_GONE, "InsufficientInstanceCapacity"), False, False),
        ((), False, False),
    ],
)
def test_a_template_is_gone_when_no_error_says_anything_else(
    codes: tuple[str, ...], launched: bool, gone: bool
) -> None:
    answer: Any = {"Errors": [{"ErrorCode": code} for code in codes], "Instances": [{}] if launched else []}
    assert fleet_requests.template_is_gone(answer) is gone


def test_what_a_fleet_was_refused_says_where_and_why() -> None:
    wanted = request(override("m5.large", "a", reservation="cr-1"), capacity_type="reserved")
    configs = fleet_requests.fleet_configs(wanted)
    where = {"InstanceType": "m5.large", "SubnetId": "subnet-a2", "AvailabilityZone": "a"}

    def error(code: str, message: str = "", **place: str) -> dict[str, Any]:
        overrides = {"Overrides": place or where}
        return {"LaunchTemplateAndOverrides": overrides, "ErrorCode": code, "ErrorMessage": message}

    answer: Any = {
        "Errors": [
            error("InsufficientInstanceCapacity", "none left"),
            error("InsufficientInstanceCapacity", "none left, said twice"),
            error("InsufficientInstanceCapacity", InstanceType="m5.large", AvailabilityZone="b"),
            error("VcpuLimitExceeded"),
            error("InsufficientFreeAddressesInSubnet", "full", SubnetId="subnet-b"),
            {"ErrorCode": "InternalError"},
        ]
    }
    assert fleet_requests.failures_of(wanted, configs, answer) == (
        OfferingFailure("", "", "reserved", "InternalError", "unknown", "", "", "", "cr-1"),
        OfferingFailure(
            "", "b", "reserved", "InsufficientFreeAddressesInSubnet", "subnet", "full", "subnet-b", "", "cr-1"
        ),
        OfferingFailure(
            "m5.large", "a", "reserved", "InsufficientInstanceCapacity", "capacity", "none left", "", "", "cr-1"
        ),
        OfferingFailure("m5.large", "a", "reserved", "VcpuLimitExceeded", "quota", "", "", "", "cr-1"),
        OfferingFailure("m5.large", "b", "reserved", "InsufficientInstanceCapacity", "capacity", "", "", "", "cr-1"),
    )


def test_a_fleet_that_is_refused_as_a_whole_is_refused_for_each_offering() -> None:
    wanted = request(override("m5.large", "b"), override("m5.large", "a"), override("c5.large", "d"))
    configs = fleet_requests.fleet_configs(wanted)
    found = fleet_requests.all_failed(wanted, configs, "Code", "capacity", "words")
    assert [(item.instance_type, item.zone) for item in found] == [("m5.large", "a"), ("m5.large", "b")]
    assert found[0] == OfferingFailure("m5.large", "a", "on-demand", "Code", "capacity", "words", "", "", "")
    none = fleet_requests.all_failed(wanted, (), "Code", "capacity", "words")
    assert [(item.instance_type, item.zone) for item in none] == [
        ("c5.large", "d"),
        ("m5.large", "a"),
        ("m5.large", "b"),
    ]


@pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
def test_the_instance_that_is_tried_is_the_one_that_would_be_launched(capacity_type: str) -> None:
    wanted = request(capacity_type=capacity_type)
    (config,) = fleet_requests.fleet_configs(wanted, INSTALL)
    asked = run_instances_parameters(wanted, config.template, "m5.large", "subnet-a1", INSTALL)
    own = tagged(Name="default-1", shiplap_dev__nodeclaim="default-1")
    interfaces = config.template.data["NetworkInterfaces"]
    assert interfaces
    expected = {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": config.template.name, "Version": "$Latest"},
        "InstanceType": "m5.large",
        "NetworkInterfaces": [{**item, "SubnetId": "subnet-a1"} for item in interfaces],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": own},
            {"ResourceType": "volume", "Tags": own},
            *config.template.data.get("TagSpecifications", ()),
        ],
    }
    market = {"InstanceMarketOptions": {"MarketType": "spot"}} if capacity_type == "spot" else {}
    assert asked == expected | market


class Ec2:
    """Notes requests and answers each with what is prepared for it, or with what a dry run is answered."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        def call(**parameters: Any) -> Any:
            self.asked.append((name, parameters))
            answer = self.answers.get(name, {})
            answer = answer.pop(0) if isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def refused(code: str, message: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Any")


WOULD = refused("DryRunOperation")


def tried(wanted: FleetRequest, **answers: Any) -> tuple[Any, list[str], Ec2]:
    """The problem that a rehearsal finds, the actions that were asked for, and all requests."""
    known: dict[str, Any] = {"describe_launch_templates": {"LaunchTemplates": []}}
    ec2: Any = Ec2(**{"create_fleet": WOULD, "run_instances": WOULD, **known} | answers)
    problem = dry_run_launch(ec2, LaunchTemplates(ec2), wanted, INSTALL)
    return problem and (problem.condition, problem.reason, problem.message), [name for name, _ in ec2.asked], ec2


def test_a_rehearsal_asks_for_a_fleet_without_a_token_and_for_one_instance() -> None:
    wanted = request(override("m5.large", "a"), override("c5.large", "a", 0.5), override("x.large", max_pods=58))
    problem, names, ec2 = tried(wanted)
    assert problem is None
    assert names[-2:] == ["create_fleet", "run_instances"]
    fleet, instance = (parameters for _, parameters in ec2.asked[-2:])
    assert fleet["DryRun"] is True
    assert "ClientToken" not in fleet
    assert len(fleet["LaunchTemplateConfigs"]) == 1
    assert (instance["InstanceType"], instance["NetworkInterfaces"][0]["SubnetId"]) == ("c5.large", "subnet-a2")


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "AuthFailure"])
def test_a_fleet_that_is_forbidden_is_a_problem_without_the_encoded_part(code: str) -> None:
    words = "You are not authorized. Encoded authorization failure message: abc"
    problem, names, _ = tried(request(), create_fleet=refused(code, words))
    said = with_remedy(code, words).partition("Encoded")[0].rstrip()
    assert problem == ("ValidationSucceeded", "CreateFleetAuthCheckFailed", said)
    assert said.startswith("You are not authorized")
    assert ("aws sts decode-authorization-message" in said) is (code == "UnauthorizedOperation")
    assert "run_instances" not in names


def test_one_subnet_in_which_an_instance_may_run_is_enough_and_three_are_tried() -> None:
    wanted = request(
        override("m5.large", "a"), override("m5.large", "b"), override("m5.large", "e"), override("m5.large", "f"),
        resolved=structs.replace(
            RESOLVED,
            subnets=tuple(structs.replace(RESOLVED.subnets[0], id=f"s-{zone}", zone=zone) for zone in "abef"),
        ),
    )  # fmt: skip
    no = [refused("UnauthorizedOperation", f"not in {zone}") for zone in "abef"]
    problem, names, ec2 = tried(wanted, run_instances=[no[0], no[1], WOULD])
    assert (problem, names.count("run_instances")) == (None, 3)
    problem, names, ec2 = tried(wanted, run_instances=list(no))
    assert problem == (
        "ValidationSucceeded",
        "RunInstancesAuthCheckFailed",
        with_remedy("UnauthorizedOperation", "not in a"),
    )
    asked = [
        parameters["NetworkInterfaces"][0]["SubnetId"] for name, parameters in ec2.asked if name == "run_instances"
    ]
    assert asked == ["s-a", "s-b", "s-e"]


def test_a_profile_that_is_missing_is_told_apart() -> None:
    words = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    problem, _, _ = tried(request(), run_instances=refused("InvalidParameterValue", words))
    said = with_remedy("InvalidParameterValue", words)
    assert problem == ("ValidationSucceeded", "InstanceProfileNotFound", said)
    assert said.startswith(f"{words}; run `cdk deploy` after")


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "InvalidParameterValue"])
def test_what_a_launch_gets_around_is_no_problem_of_the_class(code: str) -> None:
    assert tried(request(), run_instances=refused(code))[0] is None


def test_a_template_that_was_swept_is_made_again_by_the_next_rehearsal() -> None:
    swept = refused("InvalidLaunchTemplateName.NotFoundException", "no such template")
    ec2: Any = Ec2(
        describe_launch_templates={"LaunchTemplates": []}, create_fleet=[WOULD, swept, WOULD], run_instances=WOULD
    )
    templates = LaunchTemplates(ec2)
    assert dry_run_launch(ec2, templates, request(), INSTALL) is None
    with pytest.raises(AwsError):
        dry_run_launch(ec2, templates, request(), INSTALL)
    assert dry_run_launch(ec2, templates, request(), INSTALL) is None
    assert [name for name, _ in ec2.asked].count("create_launch_template") == 2


@pytest.mark.parametrize("exists", [True, False])
def test_a_template_that_is_known_is_not_asked_for_again_before_it_is_forgotten(exists: bool) -> None:
    wanted = request()
    (config,) = fleet_requests.fleet_configs(wanted, INSTALL)
    shown = [{"LaunchTemplateName": config.template.name}] if exists else []
    ec2: Any = Ec2(describe_launch_templates={"LaunchTemplates": shown})
    templates = LaunchTemplates(ec2)
    for _ in range(2):
        templates.ensure([config.template])
    made = [] if exists else ["create_launch_template"]
    assert [name for name, _ in ec2.asked] == ["describe_launch_templates", *made]
    templates.forget([config.template.name])
    templates.ensure([config.template])
    assert [name for name, _ in ec2.asked] == ["describe_launch_templates", *made] * 2


def test_nothing_is_asked_where_no_subnet_would_do() -> None:
    assert tried(request(override(zone="d"))) [:2] == (None, [])  # fmt: skip


class Pace:
    """Notes what the pace of requests is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.told.append((name, *arguments))


def told(name: str, answer: Any, **parameters: Any) -> list[tuple[Any, ...]]:
    pace: Any = Pace()
    ec2: Any = Ec2(**{name: answer})
    with suppress(ClientError):
        getattr(paced(ec2, pace), name)(**parameters)
    return list(pace.told)


FIVE = {"TargetCapacitySpecification": {"TotalTargetCapacity": 5}}


def fleet(*launched: int, errors: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "Instances": [{"InstanceIds": [f"i-{place}" for place in range(number)]} for number in launched],
        "Errors": [{"ErrorCode": code} for code in errors],
    }


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (fleet(5), []),
        (fleet(2, 3, errors=("InsufficientInstanceCapacity",)), []),
        (fleet(2, 2, errors=("InsufficientInstanceCapacity",)), [("give_back", "create_fleet", 1)]),
        (fleet(errors=("InsufficientInstanceCapacity",)), [("give_back", "create_fleet", 5)]),
        (fleet(3), []),
        (
            fleet(1, errors=("InsufficientInstanceCapacity", "RequestLimitExceeded")),
            [("instances_throttled", "create_fleet")],
        ),
        (refused("RequestLimitExceeded"), [("throttled", "create_fleet"), ("give_back", "create_fleet", 5)]),
        (refused("InvalidParameterValue"), [("give_back", "create_fleet", 5)]),
    ],
    ids=["all", "all and errors", "one fewer", "none", "fewer without a reason", "too many", "throttled", "refused"],
)
def test_tokens_of_instances_that_were_not_launched_are_given_back(answer: Any, after: list[tuple[Any, ...]]) -> None:
    assert told("create_fleet", answer, **FIVE) == [("wait", "create_fleet", 5), *after]


def test_requests_that_change_something_are_paced_at_half_of_what_ec2_allows() -> None:
    """By the default limits of the EC2 API: tokens of the bucket, and those that it gets in a second."""
    half = {
        "create_fleet": (20, 2),
        "create_launch_template": (25, 2.5),
        "create_tags": (50, 5),
        "delete_launch_template": (10, 1),
        "terminate_instances": (50, 2.5),
    }
    assert {name: (limit.burst, limit.per_second) for name, limit in LIMITS.items()} == half
    assert {name: (limit.burst, limit.per_second) for name, limit in INSTANCE_LIMITS.items()} == {
        "create_fleet": (1000, 2),
        "terminate_instances": (1000, 20),
    }


@pytest.mark.parametrize("method", ["create_tags", "create_launch_template", "delete_launch_template"])
def test_each_of_them_waits_for_its_token(method: str) -> None:
    assert told(method, {}) == [("wait", method, 0)]


def test_what_launches_nothing_waits_for_its_own_token_alone() -> None:
    assert told("create_fleet", {}, DryRun=True, **FIVE) == [("wait", "create_fleet", 0)]
    assert told("terminate_instances", {}, InstanceIds=["i-1", "i-2"]) == [("wait", "terminate_instances", 2)]
    refusal = refused("RequestLimitExceeded")
    assert told("create_tags", refusal, Tags=[]) == [("wait", "create_tags", 0), ("throttled", "create_tags")]
    assert told("describe_instances", {}) == []


def test_tags_are_written_in_order_and_read_back() -> None:
    assert tags.written({"b": "2", "a": "1"}) == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    assert tags.read([{"Key": "a", "Value": "1"}, {"Key": "b"}]) == {"a": "1", "b": ""}
    assert tags.is_foreign({"shiplap.dev/install": "x"}, "y")
    assert not tags.is_foreign({}, "y")
    assert tags.owned_by("demo") == [
        {"Name": "tag:kubernetes.io/cluster/demo", "Values": ["owned"]},
        {"Name": "tag:shiplap.dev/cluster", "Values": ["demo"]},
        {"Name": "tag-key", "Values": ["shiplap.dev/nodepool"]},
    ]
    assert tags.of_pool("demo", "p", "c", {"shiplap.dev/cluster": "mine", "team": "x"}, "") == {
        "team": "x",
        "shiplap.dev/cluster": "demo",
        "kubernetes.io/cluster/demo": "owned",
        "shiplap.dev/nodepool": "p",
        "shiplap.dev/ec2nodeclass": "c",
    }
    theirs = {"shiplap.dev/install": "theirs", "kubernetes.io/cluster/demo": "shared", "shiplap.dev/nodepool": "q"}
    ours = tags.of_pool("demo", "p", "c", theirs, "mine")
    assert [ours[key] for key in theirs] == ["mine", "owned", "p"]
    assert parameters_of(request())["ClientToken"] == "t"


def test_templates_are_looked_for_by_their_names_and_made_where_they_are_missing_once() -> None:
    configs = fleet_requests.fleet_configs(request(override(), override("c5.large", max_pods=58)), INSTALL)
    first, second = sorted((config.template for config in configs), key=lambda made: made.name)
    assert re.fullmatch(r"shiplap/demo/[0-9a-f]{20}", first.name)
    ec2: Any = Ec2(describe_launch_templates={"LaunchTemplates": [{"LaunchTemplateName": first.name}]})
    templates = LaunchTemplates(ec2)
    for _ in range(2):
        templates.ensure([second, first, second])
    names = {"Filters": [{"Name": "launch-template-name", "Values": [first.name, second.name]}], "MaxResults": 200}
    assert ec2.asked == [
        ("describe_launch_templates", names),
        (
            "create_launch_template",
            {
                "LaunchTemplateName": second.name,
                "LaunchTemplateData": second.data,
                "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags.written(second.tags)}],
            },
        ),
    ]


def test_many_templates_are_looked_for_two_hundred_at_a_time() -> None:
    (config,) = fleet_requests.fleet_configs(request(), INSTALL)
    wanted = [structs.replace(config.template, name=f"shiplap/demo/{number:03}") for number in range(205)]
    ec2: Any = Ec2(describe_launch_templates={"LaunchTemplates": []})
    LaunchTemplates(ec2).ensure(wanted)
    asked = [said["Filters"][0]["Values"] for name, said in ec2.asked if name == "describe_launch_templates"]
    assert [len(names) for names in asked] == [200, 5]
    assert [said["LaunchTemplateName"] for name, said in ec2.asked if name == "create_launch_template"] == [
        item.name for item in wanted
    ]


def test_a_template_has_the_same_name_whatever_order_tags_are_written_in() -> None:
    """A manifest that is only rearranged must not make new launch templates."""

    def name(own: dict[str, str]) -> str:
        wanted = request()
        spec = structs.replace(wanted.node_class.spec, tags=own)
        changed = structs.replace(wanted, node_class=structs.replace(wanted.node_class, spec=spec))
        (config,) = fleet_requests.fleet_configs(changed, INSTALL)
        return config.template.name

    assert name({"a": "1", "b": "2"}) == name({"b": "2", "a": "1"}) != name({"a": "1"})
