"""A kubelet may give its own Node only the labels that the admission plugin NodeRestriction lets it set."""

from __future__ import annotations

import pytest

from shiplap.aws.userdata.bootstrap import is_settable


@pytest.mark.parametrize(
    "key",
    [
        "team",
        "example.com/team",
        "kubernetes.io.example.com/team",
        "karpenter.sh/nodepool",
        # The list of Kubernetes' documentation of NodeRestriction.
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "kubelet.kubernetes.io/anything",
        "deep.kubelet.kubernetes.io/anything",
        "node.kubernetes.io/anything",
        "deep.node.kubernetes.io/anything",
    ],
)
def test_these_a_kubelet_may_set(key: str) -> None:
    assert is_settable(key)


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/role",
        "k8s.io/role",
        "node-role.kubernetes.io/worker",
        "node-restriction.kubernetes.io/team",
        "cloud.google.k8s.io/x",
        "topology.kubernetes.io/rack",
        "beta.kubernetes.io/x",
        "anode.kubernetes.io/x",
        "akubelet.kubernetes.io/x",
    ],
)
def test_these_it_may_not(key: str) -> None:
    assert not is_settable(key)
