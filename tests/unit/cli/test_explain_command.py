"""`shiplap explain` from the outside: one pod's account from files or a flight record, as table, JSON and YAML."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.disruption.commands import Decision
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.records import disruption_record as disruptions
from shiplap.records.disruption_record import DisruptionRecord
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.options import Sources
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod
from tests.unit.manifests.manifest_samples import changed

ZONE = "topology.kubernetes.io/zone"
HERE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "here", "labels": {ZONE: "z1"}},
    "status": {"allocatable": {"cpu": "500m", "memory": "1Gi", "pods": "3"}},
}
GOING = {
    **HERE,
    "metadata": {"name": "going"},
    "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
}
CORDONED = {**HERE, "metadata": {"name": "closed"}, "spec": {"unschedulable": True}}


def named(pool: str, weight: int, **taint: str) -> dict[str, Any]:
    other: dict[str, Any] = json.loads(json.dumps(POOL))
    other["metadata"]["name"] = pool
    other["spec"]["weight"] = weight
    other["spec"]["template"]["spec"]["taints"] = [taint]
    return other


@pytest.fixture
def files(tmp_path: Path) -> Path:
    gpu = named("gpu", 10, key="gpu", value="yes", effect="NoSchedule")
    (tmp_path / "pools.json").write_text(listed(POOL, gpu))
    # One large node for both pods is cheaper than two small ones.
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG).replace("0.4", "0.15"))
    elsewhere = pod("elsewhere", "1", nodeSelector={ZONE: "z9"})
    gated = pod("gated", "1", schedulingGates=[{"name": "wait"}])
    running = pod("running", "100m", nodeName="here")
    objects = [pod("one", "1"), pod("two", "1"), pod("huge", "8"), elsewhere, gated, running, HERE, CORDONED, GOING]
    (tmp_path / "state.json").write_text(listed(*objects))
    return tmp_path


def from_files(files: Path) -> list[str]:
    state, pools, catalog = (str(files / name) for name in ("state.json", "pools.json", "catalog.json"))
    asked = ["--cluster-state", state, "--manifests", pools, "--catalog", catalog]
    return [*asked, "--now", "2026-01-31T12:00:00Z", "--improve-seconds", "0"]


def explained(files: Path, name: str, shiplap: Shiplap, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = shiplap.json("explain", "pod", name, *from_files(files), code=code)
    return found


def test_a_pod_with_a_place(files: Path, shiplap: Shiplap) -> None:
    account = explained(files, "web/one", shiplap)
    assert (account["state"], account["message"], account["changes"]) == ("placed", "", [])
    assert account["asked"]["requests"] == {"cpu": "1", "pods": "1"}
    assert account["asked"]["alike"] == 2
    assert account["home"]["kind"] == "claim"
    assert account["home"]["sharedWith"] == ["web/two"]
    assert account["home"]["launch"]["instanceType"] == "large"
    why = account["home"]["account"]
    assert why["skipped"] == ["pool gpu: did not tolerate taint gpu=yes:NoSchedule"]
    assert why["types"] == "of 2 types 2 meet the requirements, 1 of them hold the pods (large)"
    assert why["price"] == "large on-demand in z1 at $0.1500/h is the only offering"
    assert why["cheaper"] == ["small at $0.1000/h: cpu short by 100m"]
    assert [(lane["lane"], lane["verdict"]) for lane in account["lanes"]] == [
        ("pool gpu", "taint"),
        ("pool default", "used"),
    ]


def test_a_pod_without_a_place_and_what_would_change_it(files: Path, shiplap: Shiplap) -> None:
    account = explained(files, "web/huge", shiplap, code=1)
    assert account["state"] == "unschedulable"
    assert account["nearest"] == {"instanceType": "large", "nodePool": "default", "resource": "cpu", "short": 100}
    best = account["changes"][0]
    assert best["changes"] == ["request 7900m cpu instead of 8"]
    assert best["place"] == "large on-demand in z1 of pool default, $0.1500/h"
    assert {group["verdict"]: group["examples"] for group in account["nodes"]} == {
        "is cordoned": ["closed"],
        "short of cpu (cpu by 7600m)": ["here"],
        "taint karpenter.sh/disrupted:NoSchedule is not tolerated": ["going"],
    }


@pytest.mark.parametrize(
    ("name", "found"),
    {
        "a workload stands for its pod without a place": ("web/api", "web/api-5f-b"),
        "with equal pods the first counts": ("web/job", "web/job+2"),
        "a pod comes before a workload of its name": ("web/one", "web/one"),
    }.values(),
)
def test_the_name_of_a_workload_stands_for_one_of_its_pods(
    files: Path, shiplap: Shiplap, name: str, found: str
) -> None:
    def made(name: str, kind: str, owner: str, cpu: str = "1", namespace: str = "web") -> dict[str, Any]:
        made_pod = pod(name, cpu)
        owners = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}]
        return {**made_pod, "metadata": {**made_pod["metadata"], "namespace": namespace, "ownerReferences": owners}}

    pods = [
        made("api-5f-a", "ReplicaSet", "api-5f"),
        made("api-5f-b", "ReplicaSet", "api-5f", cpu="8"),
        made("api-1", "StatefulSet", "api", cpu="9", namespace="shop"),
        made("job+10", "Job", "job"),
        made("job+2", "Job", "job"),
        made("other", "Job", "one", cpu="8"),
    ]
    (files / "state.json").write_text(listed(pod("one", "1"), *pods))
    code = 1 if found == "web/api-5f-b" else 0
    assert explained(files, name, shiplap, code)["pod"] == found


def test_the_page_for_people_fits_eighty_columns(
    files: Path, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        page = shiplap("explain", "pod", "web/elsewhere", *from_files(files), code=1)
        assert max(map(len, page.splitlines())) <= columns
        for words in (
            "web/elsewhere is unschedulable",
            "smallest change: do not ask for topology.kubernetes.io/zone In [z9] → large on-demand in z1",
            "selects topology.kubernetes.io/zone In [z9]",
            "is cordoned",
        ):
            assert words in " ".join(page.split()), page


def test_the_page_of_a_plan_fits_them_too(files: Path, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        page = shiplap("plan", *from_files(files), "--details", code=1)
        assert max(map(len, page.splitlines())) <= columns
        words = " ".join(page.split())
        assert "because pool gpu: did not tolerate taint gpu=yes:NoSchedule" in words
        assert "not small at $0.1000/h: cpu short by" in words


def test_a_pod_whose_volume_is_in_another_zone_than_it_selects(files: Path, shiplap: Shiplap) -> None:
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    named = {"name": "data", "namespace": "web", "annotations": done}
    claim = {"kind": "PersistentVolumeClaim", "metadata": named, "spec": {"volumeName": "vol"}}
    zones = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [zones]}}}
    volume = {"kind": "PersistentVolume", "metadata": {"name": "vol"}, "spec": affinity}
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    apart = pod("apart", "1", "1Gi", nodeSelector={ZONE: "z2"}, volumes=mounted)
    apart["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    (files / "state.json").write_text(listed(apart, claim, volume))
    account = explained(files, "web/apart", shiplap, code=1)
    asked, best = account["asked"], account["changes"][0]
    assert asked["requests"] == {"cpu": "1", "memory": "1Gi", "pods": "1"}
    assert asked["nodeSelection"] == [f"{ZONE} In [z2]"]
    assert (asked["tolerations"], asked["hostPorts"]) == (["dedicated"], ["80/TCP"])
    assert asked["volumes"] == f'persistentvolumeclaim "web/data" (vol): {ZONE} In [z1]'
    assert f"the pod asks for {ZONE} In [z2], and its volumes for {ZONE} In [z1]" in account["message"]
    assert best["changes"] == [f"do not ask for {ZONE} In [z2]"]
    assert "in z1 of pool default" in best["place"]


def test_a_pod_that_contradicts_itself_keeps_its_requests(files: Path, shiplap: Shiplap) -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    (files / "state.json").write_text(listed(pod("torn", "1", nodeSelector={ZONE: "z2"}, affinity=affinity)))
    account = explained(files, "web/torn", shiplap, code=1)
    assert "contradicts itself" in account["message"]
    assert account["asked"]["requests"] == {"cpu": "1", "pods": "1"}


def test_yaml_says_the_same(files: Path, shiplap: Shiplap) -> None:
    as_json = explained(files, "web/huge", shiplap, code=1)
    assert yaml.safe_load(shiplap("explain", "pod", "web/huge", *from_files(files), "-o", "yaml", code=1)) == as_json


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [("web/gated", "ignored", "scheduling gate wait"), ("web/running", "running", "runs on node here")],
)
def test_pods_that_are_not_planned(files: Path, shiplap: Shiplap, name: str, state: str, words: str) -> None:
    account = explained(files, name, shiplap)
    assert account["state"] == state
    assert words in account["message"]


def test_a_pod_that_is_not_planned_is_left_alone_in_the_words_of_the_plan(files: Path, shiplap: Shiplap) -> None:
    assert "web/gated is left alone\n" in shiplap("explain", "pod", "web/gated", *from_files(files))


def test_the_nearest_miss_is_told_once(files: Path, shiplap: Shiplap) -> None:
    page = " ".join(shiplap("explain", "pod", "web/huge", *from_files(files), code=1).split())
    assert page.count("large in pool default: cpu short by 100m") == 1


def test_a_pod_on_a_node_is_told_where_since_when_and_what_the_node_meets(files: Path, shiplap: Shiplap) -> None:
    bound = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-31T11:00:00Z"}]
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in ("z9", "z1")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    tolerated = [{"key": "team", "operator": "Exists"}]
    spec = {"nodeName": "here", "nodeSelector": {ZONE: "z1"}, "affinity": affinity, "tolerations": tolerated}
    running = {**pod("running", "100m", **spec), "status": {"phase": "Running", "conditions": bound}}
    tainted = {**HERE, "spec": {"taints": [{"key": "team", "value": "web", "effect": "NoSchedule"}]}}
    (files / "state.json").write_text(listed(running, tainted))
    account = explained(files, "web/running", shiplap)
    assert account["message"] == "runs on node here since 2026-01-31T11:00:00Z"  # files know of no install
    assert account["present"] == {
        "node": "here",
        "since": "2026-01-31T11:00:00Z",
        "claim": "",
        "origin": "",
        "meets": [
            "cpu 0.1 of 0.5",
            "pods 1 of 3",
            f"label {ZONE}=z1",
            f"{ZONE} In [z1]",
            "tolerates team=web:NoSchedule",
        ],
    }
    page = shiplap.page("explain", "pod", "web/running", *from_files(files))
    assert "meets cpu 0.1 of 0.5" in " ".join(page.split())


def test_a_flight_record_gives_the_same_account(files: Path, shiplap: Shiplap) -> None:
    expected = explained(files, "web/huge", shiplap, code=1)
    sources = Sources(
        cluster_state=[files / "state.json"],
        manifests=[files / "pools.json"],
        catalog=files / "catalog.json",
        now="2026-01-31T12:00:00Z",
    )
    snapshot = load_inputs(sources).snapshot
    (files / "record").write_bytes(encode(SchedulingRecord(snapshot, plan(snapshot))))
    assert shiplap.json("explain", "pod", "web/huge", "--record", str(files / "record"), code=1) == expected


def test_a_record_of_another_kind_or_version_is_for_replay(files: Path, shiplap: Shiplap) -> None:
    looked_at = DisruptionSnapshot(scheduling=Snapshot(cluster="blue", now=0.0))
    (files / "disrupt").write_bytes(disruptions.encode(DisruptionRecord(looked_at, Decision())))
    said = shiplap.error("explain", "pod", "web/one", "--record", files / "disrupt")
    assert "is a decision to disrupt nodes; `shiplap explain decision" in said
    old = {"snapshot": {"now": "yesterday"}, "plan": {}, "version": "0.0.1"}
    (files / "old").write_bytes(zlib.compress(msgspec.msgpack.encode(old)))
    said = shiplap.error("explain", "claim", "web-1", "--record", files / "old")
    assert "it was written by version 0.0.1" in said
    assert "; `shiplap explain decision" in said


def test_a_claim_is_explained(files: Path, shiplap: Shiplap) -> None:
    name = explained(files, "web/one", shiplap)["home"]["name"]
    answer = shiplap.json("explain", "claim", name, *from_files(files))
    assert answer["claim"]["name"] == name
    assert answer["account"]["cheaper"] == ["small at $0.1000/h: cpu short by 100m"]
    assert "the only offering" in shiplap("explain", "claim", name, *from_files(files))


WRONG: dict[str, tuple[list[str], str]] = {
    "pod": (["pod", "web/hug"], "there is no pod web/hug in this cluster state; did you mean web/huge"),
    "namespace": (["pod", "huge"], "there is no pod default/huge in this cluster state; did you mean web/huge"),
    "nothing like it": (["pod", "x/q7"], "it has 6 pods"),
    "claim": (["claim", "default-nothing"], "did you mean default-"),
}


@pytest.mark.parametrize(("asked", "words"), WRONG.values(), ids=WRONG.keys())
def test_unknown_names_get_a_hint(files: Path, shiplap: Shiplap, asked: list[str], words: str) -> None:
    assert words in shiplap.error("explain", *asked, *from_files(files))


def test_what_is_missing_or_contradicts_itself(files: Path, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(files / "no-kubeconfig"))
    record = files / "record"
    record.write_bytes(b"no record")
    cases = {
        "name a kubeconfig by --kubeconfig or $KUBECONFIG, or give": [],
        "--manifests: is missing": ["--cluster-state", str(files / "state.json")],
        "is a decision by itself": ["--record", str(record), "--manifests", str(files / "pools.json")],
        "not a recorded decision": ["--record", str(record)],
        "is neither a file nor an id of a record": ["--record", str(files / "absent")],
        "leave files and --record out": ["--record", str(record), "--cluster", "prod"],
    }
    for words, more in cases.items():
        assert words in shiplap.error("explain", "pod", "web/one", *more)


def test_a_pool(files: Path, shiplap: Shiplap) -> None:
    account = shiplap.json("explain", "pool", "default", *from_files(files), code=1)
    assert (account["pool"], account["nodeClass"]) == ("default", "default")
    assert sum(account["launches"].values()) >= 1
    assert account["tiers"][0]["instanceTypes"] == len(CATALOG["instanceTypes"])
    assert any(entry["pod"] == "web/huge" and entry["text"] for entry in account["away"])
    page = shiplap.page("explain", "pool", "default", *from_files(files), code=1)
    assert "web/huge has no place; tier 0: " in page
    assert "there is no NodePool defalt; known are default" in shiplap.error(
        "explain", "pool", "defalt", *from_files(files)
    )


def test_a_pool_counts_the_instance_types_that_it_may_launch(files: Path, shiplap: Shiplap) -> None:
    one = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [CATALOG["instanceTypes"][0]["name"]]}
    (files / "pools.json").write_text(listed(changed(POOL, "spec.template.spec.requirements", [one])))
    account = shiplap.json("explain", "pool", "default", *from_files(files), code=1)
    assert [tier["instanceTypes"] for tier in account["tiers"]] == [1]
