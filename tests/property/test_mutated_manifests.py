"""Manifests gone wrong in any way: each is refused with file, field and reason, or is usable; none crashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from shiplap.errors import InvalidInput
from shiplap.instances.capacity import kubelet_settings
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ami_families import first_hashes, spec_hash
from shiplap.instances.readiness.nodeclass_status import manifest_digest
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.files.documents import read_text
from shiplap.manifests.files.loading import ManifestReport, check_documents
from shiplap.manifests.template_hash import pool_hash
from shiplap.manifests.tiers import expand
from shiplap.settings import ClusterSettings
from tests.integration.flows.stage import catalog
from tests.odd_input import NOT_JSON, damaged, fuzzed, kept, spoilt

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
  labels: {team: a}
  annotations: {shiplap.dev/max-hourly-price: "12.50", shiplap.dev/min-on-demand: 30%}
spec:
  weight: 10
  limits: {cpu: "100", memory: 1000Gi, nodes: 5}
  disruption:
    consolidationPolicy: Balanced
    consolidateAfter: 1m
    budgets: [{nodes: 10%, schedule: "0 9 * * mon-fri", duration: 8h, reasons: [Empty, Drifted]}, {nodes: "3"}]
  template:
    metadata:
      labels: {team: a, speed: "5"}
      annotations: {example.com/owner: me}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      expireAfter: 720h
      terminationGracePeriod: 1h30m
      taints: [{key: dedicated, value: web, effect: NoSchedule}]
      startupTaints: [{key: starting, effect: NoExecute}]
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand], minValues: 2}
        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [c7i-flex, "*-flex", "*"]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ["33"]}
        - {key: speed, operator: Gt, values: ["2"]}
        - {key: team, operator: Exists}
"""
CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: default
  annotations: {shiplap.dev/vm-memory-overhead-percent: "0.06"}
spec:
  role: node
  amiFamily: AL2023
  amiSelectorTerms: [{name: "my-*", owner: self, tags: {a: b}}, {id: ami-0a}, {ssmParameter: /my/ami}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: "*"}}, {id: subnet-0a}]
  securityGroupSelectorTerms: [{id: sg-0123abcd}, {name: mine}]
  capacityReservationSelectorTerms: [{id: cr-012}, {tags: {a: b}, ownerID: "012345678901", instanceMatchCriteria: open}]
  placementGroupSelector: {name: mine}
  tags: {team: a}
  userData: "#!/bin/bash"
  instanceStorePolicy: RAID0
  detailedMonitoring: true
  associatePublicIPAddress: false
  ipPrefixCount: 1
  context: any
  cpuOptions: {nestedVirtualization: enabled}
  connectionTracking: {tcpEstablishedTimeout: 60, udpTimeout: 45}
  metadataOptions: {httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}
  networkInterfaces:
    - {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}
    - {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}
  blockDeviceMappings:
    - deviceName: /dev/xvda
      rootVolume: true
      ebs: {volumeSize: 100Gi, volumeType: gp3, iops: 3000, throughput: 125, encrypted: true, kmsKeyID: alias/x}
    - {deviceName: /dev/xvdb, ebs: {snapshotID: snap-0a, volumeInitializationRate: 100}}
  kubelet:
    maxPods: max_pods - 1
    podsPerCore: 2
    clusterDNS: [10.0.0.10]
    kubeReserved: {cpu: vcpus * 10, memory: 1Gi, pid: "1000"}
    evictionHard: {memory.available: 5%, nodefs.available: 1Gi}
    evictionSoft: {memory.available: 500Mi}
    evictionSoftGracePeriod: {memory.available: 1m30s}
    authentication: {webhook: {cacheTTL: 2m}}
    logging: {verbosity: 2, vmodule: [{filePattern: a, verbosity: 3}]}
    featureGates: {X: true}
    shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 2}]
"""
OVERLAY = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: measured}
spec:
  weight: 10
  priceAdjustment: "-10%"
  capacity: {example.com/gpu: "4", hugepages-2Mi: 100Mi}
  requirements:
    - {key: node.kubernetes.io/instance-type, operator: In, values: [r5a.8xlarge]}
"""
BUFFER = """
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: default}
spec:
  provisioningStrategy: buffer.x-k8s.io/active-capacity
  podTemplateRef: {name: spare}
  replicas: 3
  limits: {cpu: "10"}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: spare, namespace: default}
template:
  metadata: {labels: {a: b}}
  spec:
    containers: [{name: main, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""
SOLD = catalog(spot=True)
SETTING = cluster_setting(ClusterSettings(name="demo", region="eu-west-1"), ())
SOUND = [item for text in (POOL, CLASS, OVERLAY, BUFFER) for item in yaml.safe_load_all(text)]


def checked(text: str) -> ManifestReport | None:
    """Return the report on a file; None when it cannot be read at all, for which the error gives name and reason."""
    try:
        documents = read_text("given", text)
    except InvalidInput as problem:
        return None if problem.source == "given" else pytest.fail(str(problem))
    return check_documents(documents)


def uses(report: ManifestReport) -> None:
    """Run the code that uses manifests on manifests that were accepted."""
    for pool in report.manifests.node_pools:
        pool_hash(pool)
        expand(pool, lambda _: ("a", "b-flex"))
    for node_class in report.manifests.node_classes:
        spec_hash(node_class)
        first_hashes(node_class)
        manifest_digest(node_class)
        kubelet_settings.read_kubelet_settings(node_class)
        makes_types(node_class)


def makes_types(node_class: EC2NodeClass) -> None:
    """A formula that cannot be computed for a type is refused where types are known, with its field and a reason."""
    try:
        instance_types(SOLD, node_class, SETTING, resolved=None, learned=(), unavailable=())
    except InvalidInput as refused:
        problem = refused
    else:
        return
    assert problem.field.startswith("spec.kubelet.")
    assert problem.reason.strip()


def assert_told(report: ManifestReport | None) -> None:
    if report is None:
        return
    for problem in report.problems:
        assert problem.source == "given"
        assert problem.reason.strip()
        assert problem.field or problem.document
        assert "Traceback" not in str(problem)
    if not report.problems:
        uses(report)


@fuzzed(0.5, usual=200)
@given(spoilt(SOUND, NOT_JSON))
def test_a_mutant_in_json_is_refused_or_usable(document: dict[str, Any]) -> None:
    assert_told(checked(json.dumps(document)))


@fuzzed(0.3, usual=200)
@given(spoilt(SOUND, NOT_JSON))
def test_a_mutant_in_yaml_is_refused_or_usable(document: dict[str, Any]) -> None:
    assert_told(checked(yaml.safe_dump(document, allow_unicode=True)))


@fuzzed(0.2, usual=200)
@given(damaged([POOL, CLASS, OVERLAY, BUFFER]))
def test_a_file_with_damaged_text_is_refused_or_usable(text: str) -> None:
    assert_told(checked(text))


@kept("manifests")
def test_a_kept_file_is_refused_or_usable(kept_input: Path) -> None:
    assert_told(checked(kept_input.read_text(encoding="utf-8")))


def test_the_sound_ones_are_accepted() -> None:
    for item in SOUND:
        report = checked(json.dumps(item))
        assert report is not None
        assert report.problems == ()
        uses(report)
