"""`shiplap migrate handover`: nodes go from Karpenter to Shiplap and back as they are, wherever it is cut short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from shiplap.aws import tags
from shiplap.cluster.kubeconfig import load
from shiplap.errors import AwsError
from shiplap.kubernetes import labels
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, GIVEN_BACK, INSTALL_LABEL
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_cli.commands.migrate import handover
from shiplap_cli.commands.migrate.handed_nodes import (
    CLUSTER_NAME,
    SHIPLAPS_KEYS,
    HandoverNode,
    LeftNode,
    tags_of_karpenter,
    tags_of_shiplap,
)
from shiplap_cli.commands.migrate.handover import HandoverWork, Owner, TaggedInstances
from shiplap_cli.inputs.context_access import enter_context
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.state import FakeState
from tests.integration.contracts.in_process_aws import aws_in_process, make_client
from tests.integration.flows.live_stage import LiveStage, lease


class Account:
    """EC2 as the command asks it, over the stage's instances: what makes one ours is its tags."""

    def __init__(self, stage: LiveStage) -> None:
        self.tags: dict[str, dict[str, str]] = {}
        self.effects = 0
        self.dies_at = 0
        self._stage = stage

    def get_paginator(self, _: str) -> Account:
        return self

    def paginate(self, Filters: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:  # noqa: N803 - as botocore calls it
        alive = {item.id: item for item in self._stage.compute.alive()}
        for name in sorted(alive):
            own = self.tags.get(name, {})
            if all(self._matches(name, own, each) for each in Filters):
                seen = {"InstanceId": name, "State": {"Name": alive[name].state}, "Tags": tags.written(own)}
                yield {"Reservations": [{"Instances": [seen]}]}

    @staticmethod
    def _matches(name: str, own: dict[str, str], wanted: dict[str, Any]) -> bool:
        key = wanted["Name"]
        if key == "instance-id":
            return name in wanted["Values"]
        if key == "tag-key":
            return bool(own.keys() & set(wanted["Values"]))
        return own.get(key.removeprefix("tag:")) in wanted["Values"]

    def create_tags(self, Resources: list[str], Tags: list[Any]) -> None:  # noqa: N803 - as above
        self._effect()
        for name in Resources:
            self.set(name, {**self.tags.get(name, {}), **tags.read(Tags)})

    def delete_tags(self, Resources: list[str], Tags: list[Any]) -> None:  # noqa: N803 - as above
        self._effect()
        for name in Resources:
            gone = {tag["Key"] for tag in Tags}
            self.set(name, {key: value for key, value in self.tags[name].items() if key not in gone})

    def set(self, name: str, own: dict[str, str]) -> None:
        self.tags[name] = own
        (found,) = (item for item in self._stage.compute.alive() if item.id == name)
        self._stage.compute.add(
            replace(
                found,
                install=own.get(tags.INSTALL, ""),
                cluster=own.get(tags.CLUSTER, ""),
                claim=own.get(tags.NODE_CLAIM, ""),
                node_pool=own.get(tags.NODE_POOL, ""),
                launch=own.get(tags.LAUNCH, ""),
            )
        )

    def _effect(self) -> None:
        self.effects += 1
        if self.effects == self.dies_at:
            raise Killed


class Killed(BaseException):
    """The command ends between two effects."""


class Handed:
    """A stage with nodes in service, its cluster over HTTP, and the command's work on both."""

    def __init__(self, folder: Path) -> None:
        self.stage = LiveStage()
        self.stage.add_pods(4, cpu="3")
        self.stage.play_on()
        self.stage.minute()
        self.stage.minute()
        self.account = Account(self.stage)
        for item in self.stage.compute.alive():
            own = {tags.INSTALL: item.install, tags.CLUSTER: item.cluster, tags.NODE_POOL: item.node_pool}
            own |= {tags.NODE_CLAIM: item.claim, tags.LAUNCH: item.launch, tags.NODE_CLASS: "default"}
            self.account.set(item.id, {**own, tags.cluster_tag(item.cluster): tags.OWNED})
        self.http = KubeHttpServer(self.stage.server)
        self.config = folder / "config"
        self.writes = 0
        self.dies_at = 0

    def __enter__(self) -> Handed:
        self.http.__enter__()
        document = {
            "current-context": "blue",
            "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.http.endpoint}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        self.config.write_text(yaml.safe_dump(document))
        return self

    def __exit__(self, *error: Any) -> None:
        self.http.__exit__(*error)

    def work(self) -> HandoverWork:
        access = load(self.config, "", environment={}, home=self.config.parent)
        transport = enter_context(access, clock=self.stage.clock.now, environment={}, sleep=lambda _: None)
        send = transport.send

        def counted(method: str, path: str, body: Any, content_type: str = "application/json") -> bytes:
            self.account._effect()
            return send(method, path, body, content_type)

        transport.send = counted  # type: ignore[method-assign]
        stage = self.stage
        return HandoverWork(stage.deployed, transport, TaggedInstances(self.account), stage.state, stage.clock.now())

    def hand(self, to: Owner) -> handover.HandoverDocument:
        work = self.work()
        work.require_no_karpenter()
        return work.hand(work.found(to), to)

    def become_karpenters(self) -> None:
        """As if Karpenter had launched the same nodes: its tags, its NodeClaims, and no claim of Shiplap's."""
        stage = self.stage
        for item in self.objects().values():
            metadata = {"labels": {INSTALL_LABEL: None}}
            stage.server.patch("nodeclaims", item["metadata"]["name"], {"metadata": metadata})
        for claim in stage.claims():
            stage.server.patch(
                "nodes", claim.node_name, {"metadata": {"labels": {INSTALL_LABEL: None, labels.NODE_CLAIM: None}}}
            )
            own = {labels.NODE_POOL: claim.plan.node_pool, labels.NODE_CLAIM: claim.name, CLUSTER_NAME: stage.name}
            self.account.set(claim.instance_id, {**own, labels.NODE_CLASS: "default"})
        stage.state = FakeState(stage.faults)
        stage.context = replace(stage.context, state=stage.state)
        stage.clock.advance(600)

    def minutes(self, number: int = 4) -> None:
        """The functions at work, disruption included."""
        for _ in range(number):
            self.stage.minute()
            self.stage.attend(*self.stage.due())

    def objects(self) -> dict[str, Any]:
        return self.stage.objects()

    def nodes(self) -> dict[str, Any]:
        return self.stage.objects("nodes")

    def pods(self) -> dict[str, str]:
        listed = self.stage.server.list("pods").items
        return {item["metadata"]["uid"]: item["spec"].get("nodeName", "") for item in listed}

    def alive(self) -> set[str]:
        return {item.id for item in self.stage.compute.alive()}

    def running(self) -> tuple[Any, ...]:
        """Return the facts that must not change, whoever owns the nodes."""
        uids = {name: item["metadata"]["uid"] for name, item in self.objects().items()}
        finalizers = {name: item["metadata"]["finalizers"] for name, item in self.objects().items()}
        return uids, finalizers, set(self.nodes()), self.pods(), self.alive()


@pytest.fixture
def handed(tmp_path: Path) -> Iterator[Handed]:
    with Handed(tmp_path) as running:
        yield running


@pytest.fixture
def karpenters(handed: Handed) -> Handed:
    handed.become_karpenters()
    return handed


class TestToShiplap:
    def test_nodes_are_adopted_and_nothing_moves(self, karpenters: Handed) -> None:
        before = karpenters.running()
        document = karpenters.hand(Owner.SHIPLAP)
        assert {node.failure for node in document.nodes} == {""}
        assert document.left == ()
        karpenters.minutes()
        assert karpenters.running() == before
        claims = karpenters.stage.claims()
        assert {claim.name for claim in claims} == set(karpenters.objects())
        assert {claim.state for claim in claims} == {ClaimState.INITIALIZED}
        assert {claim.instance_id for claim in claims} == karpenters.alive()
        install = karpenters.stage.deployed.install
        owned = [*karpenters.objects().values(), *karpenters.nodes().values()]
        assert {item["metadata"]["labels"][INSTALL_LABEL] for item in owned} == {install}

    def test_they_neither_drift_nor_are_launched_again(self, karpenters: Handed) -> None:
        karpenters.hand(Owner.SHIPLAP)
        karpenters.minutes()
        launched = len(karpenters.stage.compute.launches)
        for _ in range(5):
            assert karpenters.stage.disrupt().begun == ()
            karpenters.minutes(1)
        assert len(karpenters.stage.compute.launches) == launched

    def test_deleting_one_afterwards_drains_it(self, karpenters: Handed) -> None:
        karpenters.hand(Owner.SHIPLAP)
        karpenters.minutes()
        claim = karpenters.stage.claims()[0]
        karpenters.stage.server.delete("nodeclaims", claim.name)
        for _ in range(30):
            karpenters.minutes(1)
            for pod in karpenters.stage.server.list("pods").items:
                if pod["metadata"].get("deletionTimestamp"):
                    karpenters.stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
        assert claim.instance_id not in karpenters.alive()
        assert claim.name not in karpenters.objects()

    def test_a_second_run_finds_them_done(self, karpenters: Handed) -> None:
        names = tuple(sorted(karpenters.objects()))
        karpenters.hand(Owner.SHIPLAP)
        again = karpenters.hand(Owner.SHIPLAP)
        assert (again.nodes, again.done, again.left) == ((), names, ())

    def test_nothing_begins_while_karpenter_runs(self, karpenters: Handed) -> None:
        karpenters.stage.server.create("leases", lease(karpenters.stage.clock.now()))
        with pytest.raises(handover.InvalidInput, match="scale deployment karpenter --replicas=0"):
            karpenters.hand(Owner.SHIPLAP)

    @pytest.mark.parametrize("nth", range(1, 5))
    def test_a_run_that_is_cut_short_is_made_up_for(self, karpenters: Handed, nth: int) -> None:
        before = karpenters.running()
        karpenters.account.dies_at = nth
        try:
            karpenters.hand(Owner.SHIPLAP)
        except Killed:
            karpenters.minutes()
            assert karpenters.running() == before
        karpenters.hand(Owner.SHIPLAP)
        karpenters.minutes()
        assert karpenters.running() == before
        assert {claim.instance_id for claim in karpenters.stage.claims()} == karpenters.alive()

    def test_an_instance_whose_tagging_fails_stops_no_other(
        self, karpenters: Handed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add, first = TaggedInstances.add, min(karpenters.alive())

        def refused(self: TaggedInstances, instance: str, added: dict[str, str]) -> None:
            if instance == first:
                raise AwsError("not authorised to tag", code="UnauthorizedOperation")
            add(self, instance, added)

        monkeypatch.setattr(TaggedInstances, "add", refused)
        document = karpenters.hand(Owner.SHIPLAP)
        failed = {node.instance: node.failure for node in document.nodes if node.failure}
        assert failed == {first: "not authorised to tag"}
        karpenters.minutes()
        assert {claim.instance_id for claim in karpenters.stage.claims()} == karpenters.alive() - {first}

    def test_a_claim_that_has_ended_is_not_taken_again(self, handed: Handed) -> None:
        handed.hand(Owner.KARPENTER)
        document = handed.hand(Owner.SHIPLAP)
        assert document.nodes == ()
        assert {item.reason for item in document.left} == {"it was Shiplap's before, and Shiplap takes no claim twice"}


def unfit(change: Callable[[Handed, str], None], handed: Handed) -> LeftNode:
    name = min(handed.objects())
    change(handed, name)
    (left,) = handed.work().found(Owner.SHIPLAP).left
    assert left.claim == name
    return left


def patched(**fields: Any) -> Callable[[Handed, str], None]:
    part = "status" if "status" in fields else ""

    def change(handed: Handed, name: str) -> None:
        handed.stage.server.patch("nodeclaims", name, fields, subresource=part)

    return change


def node_of(handed: Handed, name: str) -> str:
    return str(handed.objects()[name]["status"]["nodeName"])


def instance_of(handed: Handed, name: str) -> str:
    return str(handed.objects()[name]["status"]["providerID"].rpartition("/")[2])


TAINTED = {"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}}
AUTO = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda handed, name: handed.stage.server.delete("nodeclaims", name), "is being deleted"),
        (patched(spec={"nodeClassRef": AUTO}), "its node class is no EC2NodeClass: NodeClass"),
        (patched(metadata={"labels": {labels.NODE_POOL: None}}), "it has no NodePool"),
        (patched(metadata={"labels": {labels.NODE_POOL: "other"}}), "NodePool other is not there, or is refused"),
        (patched(status={"conditions": []}), "its node is not complete yet"),
        (patched(status={"providerID": "aws:///eu-west-1a/i-0gone"}), "it has no Node in service"),
        (
            lambda handed, name: handed.stage.server.patch("nodes", node_of(handed, name), TAINTED),
            "it has no Node in service",
        ),
        (lambda handed, name: handed.stage.compute.lose(instance_of(handed, name)), "its instance does not run"),
        (
            lambda handed, name: handed.account.tags[instance_of(handed, name)].update({tags.INSTALL: "two"}),
            "belongs to the install two",
        ),
        (
            lambda handed, name: handed.account.tags[instance_of(handed, name)].update({CLUSTER_NAME: "red"}),
            "does not carry a tag of cluster",
        ),
        (
            lambda handed, name: handed.account.tags[instance_of(handed, name)].update({labels.NODE_POOL: "other"}),
            "carries the tag of NodePool other, not of",
        ),
    ],
)
def test_what_is_not_fit_is_left_alone(karpenters: Handed, change: Callable[[Handed, str], None], reason: str) -> None:
    assert reason in unfit(change, karpenters).reason


def test_a_pool_whose_node_class_is_refused_hands_over_nothing(karpenters: Handed) -> None:
    karpenters.stage.server.patch("ec2nodeclasses", "default", {"spec": {"role": "another"}})
    assert {"is not there, or is refused" in item.reason for item in karpenters.work().found(Owner.SHIPLAP).left} == {
        True
    }


class TestToKarpenter:
    def test_claims_end_and_everything_else_stays(self, handed: Handed) -> None:
        before = handed.running()
        document = handed.hand(Owner.KARPENTER)
        assert {node.failure for node in document.nodes} == {""}
        handed.minutes(6)
        assert handed.running() == before
        assert handed.stage.claims() == ()
        for name, item in handed.objects().items():
            assert INSTALL_LABEL not in item["metadata"]["labels"]
            assert item["metadata"]["annotations"][GIVEN_BACK] == "true"
            own = handed.account.tags[instance_of(handed, name)]
            assert not [key for key in own if key.startswith("shiplap.dev/")]
            assert (own[labels.NODE_CLAIM], own[CLUSTER_NAME]) == (name, handed.stage.name)
        for item in handed.nodes().values():
            assert not {INSTALL_LABEL, labels.NODE_CLAIM} & item["metadata"]["labels"].keys()
            assert FINALIZER in item["metadata"]["finalizers"]

    @pytest.mark.parametrize("nth", range(1, 9))
    def test_a_run_that_is_cut_short_is_made_up_for(self, handed: Handed, nth: int) -> None:
        before = handed.running()
        handed.account.dies_at = nth
        with pytest.raises(Killed):
            handed.hand(Owner.KARPENTER)
        handed.minutes(6)
        assert handed.running() == before
        handed.hand(Owner.KARPENTER)
        handed.minutes(6)
        assert handed.running() == before
        assert handed.stage.claims() == ()
        assert not [key for own in handed.account.tags.values() for key in own if key.startswith("shiplap.dev/")]

    def test_a_node_that_is_on_its_way_out_stays(self, handed: Handed) -> None:
        claim = handed.stage.claims()[0]
        handed.stage.state.advance(claim, ClaimState.DISRUPTING, changed_at=handed.stage.clock.now())
        (left,) = handed.work().found(Owner.KARPENTER).left
        assert left.claim == claim.name
        assert "its claim is Disrupting" in left.reason

    def test_a_node_without_its_object_stays(self, handed: Handed) -> None:
        claim = handed.stage.claims()[0]
        handed.stage.server.patch("nodeclaims", claim.name, {"metadata": {"finalizers": []}})
        handed.stage.server.delete("nodeclaims", claim.name)
        (left,) = handed.work().found(Owner.KARPENTER).left
        assert "it has no NodeClaim object" in left.reason

    def test_nodes_taken_from_karpenter_go_back(self, karpenters: Handed) -> None:
        before = karpenters.running()
        karpenters.hand(Owner.SHIPLAP)
        karpenters.minutes()
        karpenters.hand(Owner.KARPENTER)
        karpenters.minutes(6)
        assert karpenters.running() == before
        assert karpenters.stage.claims() == ()


def test_tags_are_written_and_taken_away_on_ec2() -> None:
    with aws_in_process():
        ec2 = make_client("ec2")
        made = ec2.run_instances(ImageId="ami-12345678", MinCount=2, MaxCount=2)["Instances"]
        one, other = sorted(item["InstanceId"] for item in made)
        account = TaggedInstances(ec2)
        node = HandoverNode("flex-1", "n1", one, "flex", "default")
        account.add(one, tags_of_karpenter(node, "demo"))
        account.add(one, tags_of_shiplap(node, "demo", "shiplap"))
        assert set(account.owned("demo", "shiplap")) == {one}
        assert account.owned("demo", "two") == account.owned("red", "shiplap") == {}
        assert account.named([one, other, "i-0gone"])[one].state == "running"
        account.remove(one, SHIPLAPS_KEYS)
        assert account.owned("demo", "shiplap") == {}
        assert account.named([one])[one].tags == tags_of_karpenter(node, "demo")


class TestCommand:
    @pytest.fixture(autouse=True)
    def deployed(self, karpenters: Handed, monkeypatch: pytest.MonkeyPatch) -> None:
        stage = karpenters.stage

        class Deployed:
            @staticmethod
            def state() -> Any:
                return stage.state

        monkeypatch.setattr(handover, "find_install", lambda **_: Deployed())
        monkeypatch.setattr(handover, "cluster_settings_of", lambda _, __: stage.deployed)
        monkeypatch.setattr(handover, "aws_client", lambda *_: karpenters.account)
        monkeypatch.setattr(handover.time, "time", stage.clock.now)

    def says(self, handed: Handed, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, Any]:
        arguments = [
            "migrate",
            "handover",
            "--cluster",
            handed.stage.name,
            "--kubeconfig",
            str(handed.config),
            "-o",
            "json",
            *more,
        ]
        assert run(arguments) == code
        printed = capsys.readouterr()
        return dict(json.loads(printed.out)) if printed.out else {"error": printed.err}

    def test_a_dry_run_changes_nothing(self, karpenters: Handed, capsys: pytest.CaptureFixture[str]) -> None:
        before = {name: dict(own) for name, own in karpenters.account.tags.items()}
        said = self.says(karpenters, capsys, "--to", "shiplap", "--dry-run")
        assert (said["changed"], len(said["nodes"])) == (False, len(karpenters.objects()))
        assert karpenters.account.tags == before

    def test_it_hands_over_when_told_to(self, karpenters: Handed, capsys: pytest.CaptureFixture[str]) -> None:
        said = self.says(karpenters, capsys, "--to", "shiplap", "--yes")
        assert said["changed"]
        karpenters.minutes()
        assert {claim.name for claim in karpenters.stage.claims()} == {node["claim"] for node in said["nodes"]}

    def test_it_asks_before(self, karpenters: Handed, capsys: pytest.CaptureFixture[str]) -> None:
        said = self.says(karpenters, capsys, "--to", "shiplap", code=2)
        assert "add --yes where nobody can answer, or --dry-run" in said["error"]

    def test_one_that_stays_is_an_exit_code(self, karpenters: Handed, capsys: pytest.CaptureFixture[str]) -> None:
        patched(status={"conditions": []})(karpenters, min(karpenters.objects()))
        said = self.says(karpenters, capsys, "--to", "shiplap", "--yes", code=1)
        assert [item["reason"] for item in said["left"]] == ["its node is not complete yet"]

    def test_manifests_from_files_are_refused(self, karpenters: Handed, capsys: pytest.CaptureFixture[str]) -> None:
        karpenters.stage.deployed = msgspec.structs.replace(karpenters.stage.deployed, live_manifests=False)
        said = self.says(karpenters, capsys, "--to", "shiplap", code=2)
        assert "set `manifests: cluster`" in said["error"]

    def test_a_lease_that_cannot_be_read_is_refused(
        self, karpenters: Handed, capsys: pytest.CaptureFixture[str]
    ) -> None:
        body = lease(0.0)
        body["spec"]["renewTime"] = "soon"
        karpenters.stage.server.create("leases", body)
        assert self.says(karpenters, capsys, "--to", "shiplap", code=2)["error"]
