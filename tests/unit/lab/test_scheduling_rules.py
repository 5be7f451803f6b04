"""The simulated kube-scheduler where other pods and volumes decide: spread, affinity, volumes, preemption."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import ObjectNotFound
from shiplap_lab.cluster_simulator import topology_filters, volume_binder
from shiplap_lab.cluster_simulator.kube_scheduler import Scheduler
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class Cluster:
    """Nodes `a1`, `a2`, `b1` … in the zones of their first letters, with room for four pods of one core each."""

    def __init__(self, *nodes: str, cpu: str = "4") -> None:
        self.server = ApiServer(FakeClock())
        self.scheduler = Scheduler(self.server)
        for name in nodes:
            labels = {ZONE: name[0], HOST: name}
            self.server.create("nodes", node_object(name, cpu, "16Gi", "10", labels=labels))

    def add(self, name: str, *, on: str = "", app: str = "web", namespace: str = "default", **spec: Any) -> None:
        body = pod_object(name, "1", "1Gi", namespace=namespace, node=on, metadata={"labels": {"app": app}}, **spec)
        self.server.create("pods", body, namespace)

    def claim(self, name: str, **spec: Any) -> None:
        """A PersistentVolumeClaim of class `gp3`; `volumeName` says that it is bound."""
        done = {volume_binder._BOUND: "yes"} if spec.get("volumeName") else {}
        body = {"metadata": {"name": name, "annotations": done}, "spec": {"storageClassName": "gp3", **spec}}
        self.server.create("persistentvolumeclaims", body, "default")

    def storage_class(self, **fields: Any) -> None:
        body = {"metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com", **fields}
        self.server.create("storageclasses", body)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.step(0.0)

    def node_of(self, name: str) -> str:
        return str(self.server.get("pods", name, "default")["spec"].get("nodeName", ""))

    def why(self, name: str) -> str:
        conditions = self.server.get("pods", name, "default")["status"]["conditions"]
        return str(conditions[0]["message"])


def spread(key: str = ZONE, most: int = 1, **fields: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    rule = {"maxSkew": most, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**rule, **fields}]}


def near(app: str, key: str = ZONE, *, anti: bool = False, **fields: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **fields}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def mounted(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


class TestSpread:
    def test_pods_of_one_step_are_spread_one_after_the_other(self) -> None:
        cluster = Cluster("a1", "b1", "c1")
        for number in range(6):
            cluster.add(f"p{number}", **spread())
        cluster.step()
        assert sorted(cluster.node_of(f"p{number}") for number in range(6)) == ["a1", "a1", "b1", "b1", "c1", "c1"]

    def test_a_pod_that_would_make_the_skew_too_large_waits_and_says_why(self) -> None:
        cluster = Cluster("a1", "b1", cpu="1")
        cluster.add("there", on="a1")
        cluster.add("full", on="b1", app="other")
        cluster.server.create("nodes", node_object("a2", "4", "16Gi", "10", labels={ZONE: "a", HOST: "a2"}))
        cluster.add("p", **spread())
        cluster.step()
        assert topology_filters.SPREAD in cluster.why("p")
        assert cluster.scheduler.kept_off[topology_filters.SPREAD] == 1

    @pytest.mark.parametrize(
        ("rule", "node"),
        [
            ({}, "b1"),
            ({"maxSkew": 2}, "a1"),
            ({"whenUnsatisfiable": "ScheduleAnyway"}, "a1"),
            ({"labelSelector": {"matchLabels": {"app": "other"}}}, "a1"),
            ({"minDomains": 3, "maxSkew": 2}, "a1"),
            ({"minDomains": 3}, "b1"),
            ({"matchLabelKeys": ["app"]}, "b1"),
        ],
    )
    def test_what_counts_is_said_by_the_rule(self, rule: dict[str, Any], node: str) -> None:
        """There is one pod in zone a, on a node with more room than that in zone b."""
        cluster = Cluster("a1", "b1")
        cluster.add("there", on="a1")
        for number in range(2):
            cluster.add(f"b{number}", on="b1", app="unlike")
        cluster.add("p", **spread(**rule))
        cluster.step()
        assert cluster.node_of("p") == node

    def test_a_node_without_the_label_takes_no_pod_and_makes_no_domain(self) -> None:
        cluster = Cluster("a1", cpu="1")
        cluster.server.create("nodes", node_object("bare", "4", "16Gi", "10"))
        cluster.add("there", on="a1")
        cluster.add("p", **spread())
        cluster.step()
        assert topology_filters.SPREAD_LABEL in cluster.why("p")

    def test_pods_that_end_and_those_of_other_namespaces_do_not_count(self) -> None:
        cluster = Cluster("a1", "b1")
        cluster.add("ends", on="a1")
        cluster.server.delete("pods", "ends", "default")
        cluster.add("elsewhere", on="a1", namespace="other")
        for number in range(3):
            cluster.add(f"b{number}", on="b1", app="unlike")
        cluster.add("p", **spread())
        cluster.step()
        assert cluster.node_of("p") == "a1"

    @pytest.mark.parametrize(("policy", "node"), [("Ignore", ""), ("Honor", "a1")])
    def test_nodes_with_taints_are_domains_unless_they_are_not_to_be(self, policy: str, node: str) -> None:
        cluster = Cluster("a1", "b1")
        taints = {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}
        cluster.server.patch("nodes", "b1", taints)
        cluster.add("there", on="a1")
        cluster.add("p", **spread(nodeTaintsPolicy=policy))
        cluster.step()
        assert cluster.node_of("p") == node


class TestAffinity:
    def test_a_pod_goes_where_those_are_that_it_wants_to_be_near(self) -> None:
        cluster = Cluster("a1", "b1", "b2")
        cluster.add("cache", app="cache", on="b1")
        cluster.add("p", **near("cache"))
        cluster.step()
        assert cluster.node_of("p") == "b2"

    def test_the_first_of_a_group_that_wants_its_own_company_may_go_anywhere_and_the_others_follow(self) -> None:
        cluster = Cluster("a1", "b1")
        for number in range(3):
            cluster.add(f"p{number}", **near("web"))
        cluster.step()
        assert len({cluster.node_of(f"p{number}") for number in range(3)} - {""}) == 1

    def test_without_those_it_wants_to_be_near_a_pod_waits(self) -> None:
        cluster = Cluster("a1")
        cluster.add("p", **near("cache"))
        cluster.step()
        assert topology_filters.AFFINITY in cluster.why("p")

    def test_pods_that_keep_apart_are_on_different_nodes(self) -> None:
        cluster = Cluster("a1", "a2")
        for number in range(3):
            cluster.add(f"p{number}", **near("web", HOST, anti=True))
        cluster.step()
        assert sorted(cluster.node_of(f"p{number}") for number in range(3)) == ["", "a1", "a2"]
        assert "anti-affinity" in cluster.why("p2")

    def test_a_pod_without_rules_keeps_away_from_one_that_does_not_want_it(self) -> None:
        cluster = Cluster("a1", "b1")
        cluster.add("shy", app="shy", on="a1", **near("web", anti=True))
        cluster.add("p")
        cluster.add("q", app="other")
        cluster.step()
        assert cluster.node_of("p") == "b1"
        assert cluster.node_of("q") == "a1"
        cluster.server.delete("pods", "shy", "default", grace_s=0)
        cluster.add("r")
        cluster.step()
        assert cluster.node_of("r") == "a1"

    @pytest.mark.parametrize(
        ("fields", "node"),
        [
            ({}, "a1"),
            ({"namespaces": ["other"]}, "b1"),
            ({"namespaceSelector": {}}, "b1"),
            ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, "b1"),
            ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, "a1"),
            ({"namespaces": ["other"], "matchLabelKeys": ["app"]}, "a1"),
            ({"namespaces": ["other"], "mismatchLabelKeys": ["app"]}, "b1"),
        ],
    )
    def test_which_namespaces_and_labels_count_is_said_by_the_term(self, fields: dict[str, Any], node: str) -> None:
        """A pod that `p` keeps away from, if it counts, is on the node that `p` would get."""
        cluster = Cluster("a1", "b1")
        cluster.server.create("namespaces", {"metadata": {"name": "other", "labels": {"team": "x"}}})
        cluster.add("there", on="a1", app="cache", namespace="other")
        for number in range(2):
            cluster.add(f"b{number}", on="b1", app="unlike")
        cluster.add("p", **near("cache", anti=True, **fields))
        cluster.step()
        assert cluster.node_of("p") == node


class TestVolumes:
    def test_a_pod_goes_to_the_zone_of_its_volume(self) -> None:
        cluster = Cluster("a1", "b1")
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        cluster.server.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": affinity}})
        cluster.claim("data", volumeName="disk")
        cluster.add("p", **mounted("data"))
        cluster.step()
        assert cluster.node_of("p") == "b1"
        assert cluster.scheduler.kept_off[volume_binder.CONFLICT] == 1

    def test_a_claim_that_waits_for_its_consumer_gets_a_volume_in_the_zone_of_its_node(self) -> None:
        cluster = Cluster("a1", "b1")
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
        cluster.storage_class(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
        cluster.claim("data", resources={"requests": {"storage": "5Gi"}})
        cluster.add("p", **mounted("data"))
        cluster.step()
        assert cluster.node_of("p") == "b1"
        claim = cluster.server.get("persistentvolumeclaims", "data", "default")
        assert claim["status"] == {"phase": "Bound", "capacity": {"storage": "5Gi"}}
        volume = cluster.server.get("persistentvolumes", claim["spec"]["volumeName"])
        assert volume["spec"]["capacity"] == {"storage": "5Gi"}
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": ["b"]}]
        cluster.server.delete("pods", "p", "default", grace_s=0)
        cluster.add("q", **mounted("data"))
        cluster.step()
        assert cluster.node_of("q") == "b1"

    def test_a_pod_waits_for_claims_that_nothing_binds_or_that_do_not_exist(self) -> None:
        cluster = Cluster("a1")
        cluster.storage_class()
        cluster.claim("data")
        cluster.add("p", **mounted("data"))
        cluster.add("q", **mounted("none"))
        cluster.step()
        assert volume_binder.UNBOUND in cluster.why("p")
        assert 'persistentvolumeclaim "none" not found' in cluster.why("q")

    def test_no_zone_of_the_class_has_a_node(self) -> None:
        cluster = Cluster("a1")
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]}]
        cluster.storage_class(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
        cluster.claim("data")
        cluster.add("p", **mounted("data"))
        cluster.step()
        assert volume_binder.NO_VOLUME in cluster.why("p")


class TestPreemption:
    def test_an_important_pod_gets_the_room_of_one_that_matters_less(self) -> None:
        cluster = Cluster("a1", cpu="2")
        cluster.add("low", on="a1", priority=1)
        cluster.add("middle", on="a1", priority=5)
        cluster.add("high", priority=9)
        cluster.step()
        assert cluster.server.get("pods", "low", "default")["metadata"]["deletionTimestamp"]
        assert "deletionTimestamp" not in cluster.server.get("pods", "middle", "default")["metadata"]
        assert cluster.server.get("pods", "high", "default")["status"]["nominatedNodeName"] == "a1"
        assert cluster.scheduler.preempted == 1
        cluster.step(2)  # nothing more has to go meanwhile
        assert cluster.scheduler.preempted == 1
        cluster.server.delete("pods", "low", "default", grace_s=0)
        cluster.add("thief", priority=2)
        cluster.step()
        assert cluster.node_of("high") == "a1"
        assert cluster.node_of("thief") == ""

    def test_nothing_goes_for_a_pod_that_would_not_fit_all_the_same_or_may_not_preempt(self) -> None:
        cluster = Cluster("a1", cpu="2")
        for number in range(2):
            cluster.add(f"low{number}", on="a1")
        cluster.add("polite", priority=9, preemptionPolicy="Never")
        cluster.add("elsewhere", priority=9, nodeSelector={ZONE: "b"})
        cluster.add("equal")
        cluster.step()
        assert cluster.scheduler.preempted == 0

    def test_the_node_is_chosen_whose_pods_break_no_budget_then_whose_matter_least(self) -> None:
        cluster = Cluster("a1", "a2", "a3", cpu="1")
        cluster.add("guarded", app="guarded", on="a1")
        cluster.add("dear", on="a2", priority=5)
        cluster.add("cheap", on="a3", priority=3)
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        for name in ("guarded", "dear", "cheap"):
            cluster.server.patch("pods", name, running, "default", subresource="status")
        spec = {"selector": {"matchLabels": {"app": "guarded"}}, "maxUnavailable": 0}
        cluster.server.create("poddisruptionbudgets", {"metadata": {"name": "g"}, "spec": spec}, "default")
        cluster.add("high", priority=9)
        cluster.step()
        assert cluster.server.get("pods", "high", "default")["status"]["nominatedNodeName"] == "a3"
        for name in ("a2", "a3"):
            cluster.server.delete("nodes", name)
        cluster.step()
        assert cluster.server.get("pods", "high", "default")["status"]["nominatedNodeName"] == "a1"

    def test_a_less_important_pod_loses_its_nomination_to_the_node(self) -> None:
        cluster = Cluster("a1", cpu="1")
        cluster.add("there", on="a1")
        cluster.add("waits", priority=1)
        cluster.step()
        assert cluster.server.get("pods", "waits", "default")["status"]["nominatedNodeName"] == "a1"
        cluster.add("high", priority=9)
        cluster.step()
        assert "nominatedNodeName" not in cluster.server.get("pods", "waits", "default")["status"]
        assert cluster.server.get("pods", "high", "default")["status"]["nominatedNodeName"] == "a1"

    def test_a_nomination_is_taken_back_when_the_pod_does_not_fit_there_after_all(self) -> None:
        """Meanwhile a pod like it has come to the zone, and the two must not be near each other."""
        cluster = Cluster("a1", "a2", cpu="1")
        cluster.add("low", on="a1")
        cluster.add("high", priority=9, **near("web", anti=True, matchLabelKeys=[]))
        cluster.server.patch("pods", "low", {"metadata": {"labels": {"app": "low"}}}, "default")
        cluster.add("other", app="low", on="a2")
        cluster.step()
        nominated = cluster.server.get("pods", "high", "default")["status"]["nominatedNodeName"]
        cluster.server.delete("pods", "low" if nominated == "a1" else "other", "default", grace_s=0)
        cluster.add("neighbour", on=nominated)
        cluster.step()
        assert "nominatedNodeName" not in cluster.server.get("pods", "high", "default")["status"]

    def test_a_pod_that_is_deleted_meanwhile_costs_nobody_their_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = Cluster("a1", cpu="1")
        cluster.add("low", on="a1")
        cluster.add("high", priority=9)

        def gone(*_: object) -> None:
            raise ObjectNotFound("pods high not found", status=404)

        monkeypatch.setattr(cluster.scheduler, "_victims", gone)
        cluster.step()
        assert cluster.scheduler.preempted == 0
