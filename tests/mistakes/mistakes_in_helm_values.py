"""Mistakes in the values of the Helm chart, as Helm itself tells them."""

from __future__ import annotations

MISTAKES = {
    "letters swapped": ("grup: shiplap\n", "grup", "not allowed"),
    "capital": ("Group: shiplap\n", "Group", "not allowed"),
    "empty group": ("group: ''\n", "group", "write one without blanks, such as shiplap"),
    "two words": ("group: two words\n", "group", "write one without blanks, such as shiplap"),
    "group of Kubernetes": ("group: system:masters\n", "group", "name one of your own, such as shiplap"),
    "no group": ("group:\n", "group", "missing"),
    "list of groups": ("group: [shiplap]\n", "group", "want string"),
    "groups": ("groups: [shiplap]\n", "groups", "not allowed"),
    "number for a group": ("group: 1000\n", "group", "want string"),
    "capital value": ("manifests: Cluster\n", "manifests", "'files', 'cluster'"),
    "flag for manifests": ("manifests: true\n", "manifests", "'files', 'cluster'"),
    "folder of manifests": ("manifests: manifests/production\n", "manifests", "'files', 'cluster'"),
    "no manifests": ("manifests: ''\n", "manifests", "'files', 'cluster'"),
    "capital Lease": ("karpenterLease: Karpenter\n", "karpenterLease", "write lower-case letters"),
    "no Lease": ("karpenterLease: ''\n", "karpenterLease", "write lower-case letters"),
    "hyphen first": ("karpenterLease: -a\n", "karpenterLease", "write lower-case letters"),
    "Lease in a folder": (
        "karpenterLease: kube-system/karpenter/lease\n",
        "karpenterLease",
        "write lower-case letters",
    ),
    "Lease turned off": ("karpenterLease: false\n", "karpenterLease", "want string"),
    "snake case": ("karpenter_lease: karpenter\n", "karpenter_lease", "not allowed"),
    "share turned off": ("flowControl: false\n", "flowControl", ""),
    "yes": ("flowControl: {enabled: 'yes'}\n", "flowControl/enabled", "want boolean"),
    "zero": ("flowControl: {nominalConcurrencyShares: 0}\n", "flowControl/nominalConcurrencyShares", "got 0, want 1"),
    "quoted": (
        "flowControl: {nominalConcurrencyShares: '20'}\n",
        "flowControl/nominalConcurrencyShares",
        "got string, want integer",
    ),
    "fraction": (
        "flowControl: {nominalConcurrencyShares: 1.5}\n",
        "flowControl/nominalConcurrencyShares",
        "got number, want integer",
    ),
    "beyond a hundred": ("flowControl: {lendablePercent: 101}\n", "flowControl/lendablePercent", "got 101, want 100"),
    "below nothing": ("flowControl: {lendablePercent: -1}\n", "flowControl/lendablePercent", "got -1, want 0"),
    "sign of per cent": ("flowControl: {lendablePercent: 50%}\n", "flowControl/lendablePercent", "want integer"),
    "shares": ("flowControl: {shares: 20}\n", "flowControl", "'shares' not allowed"),
    "case of flowControl": ("flowcontrol: {enabled: false}\n", "flowcontrol", "not allowed"),
    "not nested": ("enabled: false\n", "enabled", "not allowed"),
    "feature switched by a word": ("features: {rollouts: 'on'}\n", "features/rollouts", "want boolean"),
    "feature in the singular": ("features: {rollout: true}\n", "features", "'rollout' not allowed"),
    "below the chart": ("shiplap-cluster: {group: shiplap}\n", "shiplap-cluster", "not allowed"),
    "settings of the install": ("region: eu-west-1\nclusters: []\n", "clusters", "'clusters', 'region' not allowed"),
    "two at once": (
        "manifests: files,cluster\nflowControl: {enabled: 1}\n",
        "flowControl/enabled",
        "'files', 'cluster'",
    ),
    "two patterns at once": ("group: a b\nkarpenterLease: A\n", "karpenterLease", "group:"),
}
"""The values.yaml, the field that is named, and the words."""
