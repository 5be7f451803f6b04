"""Mistakes that people make in a shiplap.yaml: each is told with its line, its field, the reason and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap_cdk.install_document import read

LEAST = "region: eu-west-1\nclusters:\n  - name: a\n    manifests: cluster\n"

MISTAKES = {
    "minutes": (
        LEAST + "    joinTimeoutSeconds: 15m\n",
        5,
        "clusters[0].joinTimeoutSeconds",
        "; write the number alone, without a unit",
    ),
    "quoted number": (
        LEAST + "    joinTimeoutSeconds: '900'\n",
        5,
        "clusters[0].joinTimeoutSeconds",
        "umber, got text; write it without quotes",
    ),
    "float seconds": (
        LEAST + "    joinTimeoutSeconds: 900.5\n",
        5,
        "clusters[0].joinTimeoutSeconds",
        "expected a whole number, got a number (900.5)",
    ),
    "tab": ("region: eu-west-1\n\tclusters: []\n", 2, "", " tab character that violates indentation"),
    "indent": (
        "region: eu-west-1\nclusters:\n  - name: a\n   manifests: b\n",
        4,
        "",
        "not YAML: did not find expected '-' indicator",
    ),
    "map clusters": (
        "region: eu-west-1\nclusters:\n  a: {manifests: cluster}\n",
        2,
        "clusters",
        ", got a mapping; begin each entry with -",
    ),
    "cluster singular": (
        "region: eu-west-1\ncluster: [{name: a, manifests: cluster}]\n",
        1,
        "clusters",
        "required field is missing",
    ),
    "regions": (
        "regions: [eu-west-1]\nclusters: [{name: a, manifests: cluster}]\n",
        1,
        "regions",
        "unknown field, did you mean region?",
    ),
    "zone": (
        "region: eu-west-1a\nclusters:\n  - name: a\n    manifests: cluster\n",
        1,
        "region",
        "'eu-west-1a' is not a Region, the nearest are eu-west-1, eu-west-3, us-west-1",
    ),
    "upper region": (
        "region: EU-WEST-1\nclusters:\n  - name: a\n    manifests: cluster\n",
        1,
        "region",
        "'EU-WEST-1' is not a Region, the nearest are eu-west-1",
    ),
    "spaced region": (
        "region: eu west 1\nclusters:\n  - name: a\n    manifests: cluster\n",
        1,
        "region",
        "'eu west 1' is not a Region, the nearest are eu-west-1",
    ),
    "region name": (
        "region: Ireland\nclusters:\n  - name: a\n    manifests: cluster\n",
        1,
        "region",
        "'Ireland' is not a Region, for example eu-west-1",
    ),
    "env": (
        "region: ${AWS_REGION}\nclusters:\n  - name: a\n    manifests: cluster\n",
        1,
        "region",
        "t nobody fills in here: write the Region",
    ),
    "env account": (LEAST + "account: $ACCOUNT\n", 5, "account", "'$ACCOUNT' is not 12 digits"),
    "helm": (
        "region: eu-west-1\nclusters:\n  - name: {{ .Values.name }}\n    manifests: cluster\n",
        3,
        "",
        "at has braces (a key must be plain text)",
    ),
    "helm quoted": (
        "region: eu-west-1\nclusters:\n  - name: '{{ .Values.name }}'\n    manifests: cluster\n",
        3,
        "clusters[0].name",
        "me }}' is not the name of an EKS cluster",
    ),
    "arn name": (
        "region: eu-west-1\nclusters:\n  - name: arn:aws:eks:eu-west-1:123456789012:cluster/a\n    manifests: cluster\n",  # noqa: E501 - one text
        3,
        "clusters[0].name",
        "ter/a' is not the name of an EKS cluster",
    ),
    "account number": (LEAST + "account: 123456789012\n", 5, "account", " number (123456789012); put it in quotes"),
    "account dashes": (LEAST + "account: '1234-5678-9012'\n", 5, "account", "'1234-5678-9012' is not 12 digits"),
    "octal account": (LEAST + "account: 012345678901\n", 5, "account", "number (12345678901.0); put it in quotes"),
    "snake": (
        LEAST + "    join_timeout_seconds: 900\n",
        5,
        "clusters[0].join_timeout_seconds",
        " field, did you mean joinTimeoutSeconds?",
    ),
    "kebab": (
        LEAST + "    join-timeout-seconds: 900\n",
        5,
        "clusters[0].join-timeout-seconds",
        " field, did you mean joinTimeoutSeconds?",
    ),
    "Caps": (LEAST + "    Placement: nominate\n", 5, "clusters[0].Placement", "unknown field, did you mean placement?"),
    "upper value": (
        LEAST + "    placement: Nominate\n",
        5,
        "clusters[0].placement",
        "e of none, nominate, bind, is 'Nominate'",
    ),
    "policy case": (
        LEAST + "    minValuesPolicy: bestEffort\n",
        5,
        "clusters[0].minValuesPolicy",
        "e of Strict, BestEffort, is 'bestEffort'",
    ),
    "yes": (LEAST + "    watch: 'yes'\n", 5, "clusters[0].watch", "ext; write true or false, without quotes"),
    "one": (LEAST + "    audit: 1\n", 5, "clusters[0].audit", "ed true or false, got a whole number (1)"),
    "quoted true": (
        LEAST + "    paused: 'true'\n",
        5,
        "clusters[0].paused",
        "ext; write true or false, without quotes",
    ),
    "memory": ("watchMemoryMib: 512Mi\n" + LEAST, 1, "watchMemoryMib", "; write the number alone, without a unit"),
    "GiB": ("watchMemoryMib: 1GiB\n" + LEAST, 1, "watchMemoryMib", "; write the number alone, without a unit"),
    "subnet arn": (
        LEAST
        + "    vpc: {subnets: [arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-0a1b2c3d], securityGroups: [sg-0a1b2c3d]}\n",  # noqa: E501 - one text
        5,
        "clusters[0].vpc.subnets[0]",
        "bnet-0a1b2c3d' is not the id of a subnet",
    ),
    "subnetIds": (
        LEAST + "    vpc: {subnetIds: [subnet-0a1b2c3d], securityGroupIds: [sg-0a1b2c3d]}\n",
        5,
        "clusters[0].vpc.subnetIds",
        "unknown field, did you mean subnets?",
    ),
    "subnet text": (
        LEAST + "    vpc: {subnets: subnet-0a1b2c3d, securityGroups: sg-0a1b2c3d}\n",
        5,
        "clusters[0].vpc.subnets",
        " list, got text; write [subnet-0a1b2c3d]",
    ),
    "comma": (
        LEAST + "    vpc: {subnets: 'subnet-0a1b2c3d,subnet-1a1b2c3d', securityGroups: [sg-0a1b2c3d]}\n",
        5,
        "clusters[0].vpc.subnets",
        "write [subnet-0a1b2c3d, subnet-1a1b2c3d]",
    ),
    "vpc id": (LEAST + "    vpc: vpc-0a1b2c3d\n", 5, "clusters[0].vpc", "expected a mapping, got text"),
    "role arn": (
        LEAST + "    nodeRoles: [arn:aws:iam::123456789012:role/nodes]\n",
        5,
        "clusters[0].nodeRoles",
        "nd +=,.@_-, without its ARN; write nodes",
    ),
    "role text": (
        LEAST + "    nodeRoles: nodes\n",
        5,
        "clusters[0].nodeRoles",
        "expected a list, got text; write [nodes]",
    ),
    "nodeRole": (LEAST + "    nodeRole: nodes\n", 5, "clusters[0].nodeRole", "unknown field, did you mean nodeRoles?"),
    "kubectl kind": (
        "apiVersion: v1\nkind: Config\n" + LEAST,
        1,
        "apiVersion",
        "he manifests, it is one of kind NodePool",
    ),
    "metadata": ("metadata: {name: a}\n" + LEAST, 1, "metadata", "he manifests, it is one of kind NodePool"),
    "karpenter cluster": (LEAST + "    clusterName: a\n", 5, "clusters[0].clusterName", "unknown field"),
    "karpenter": (
        LEAST + "    settings: {clusterName: a}\n",
        5,
        "clusters[0].settings",
        "unknown field, did you mean ceilings?",
    ),
    "consolidation": (
        LEAST + "    disruption: {consolidationPolicy: WhenEmpty}\n",
        5,
        "clusters[0].disruption.consolidationPolicy",
        "he manifests, it is one of kind NodePool",
    ),
    "consolidateAfter": (
        LEAST + "    disruption: {consolidateAfter: 30s}\n",
        5,
        "clusters[0].disruption.consolidateAfter",
        "he manifests, it is one of kind NodePool",
    ),
    "expireAfter": (
        LEAST + "    expireAfter: 720h\n",
        5,
        "clusters[0].expireAfter",
        "he manifests, it is one of kind NodePool",
    ),
    "limits": (LEAST + "    limits: {cpu: 100}\n", 5, "clusters[0].limits", "he manifests, it is one of kind NodePool"),
    "spot": (LEAST + "    spotRisk: prefer\n", 5, "clusters[0].spotRisk", "expected a mapping, got text"),
    "spot on": (
        LEAST + "    spotRisk: {mode: on}\n",
        5,
        "clusters[0].spotRisk.mode",
        "t true or false (True); put it in quotes",
    ),
    "percent": (
        LEAST + "    spotRisk: {mode: prefer, mostPremium: 15%}\n",
        5,
        "clusters[0].spotRisk.mostPremium",
        "; write the number alone, without a unit",
    ),
    "percent2": (
        LEAST + "    vmMemoryOverheadPercent: 7.5\n",
        5,
        "clusters[0].vmMemoryOverheadPercent",
        "1, is 7.5; a fraction, for example 0.075",
    ),
    "gang": (LEAST + "    gang: {mode: whole}\n", 5, "clusters[0].gang", "unknown field, did you mean gangs?"),
    "gangs bool": (LEAST + "    gangs: true\n", 5, "clusters[0].gangs", "expected a mapping, got true or false (True)"),
    "gangs 5": (
        LEAST + "    gangs: {mode: whole, membersWithin: 5}\n",
        5,
        "clusters[0].gangs.membersWithin",
        "d text, got a whole number (5); write 5s",
    ),
    "gangs minutes": (
        LEAST + "    gangs: {mode: whole, membersWithin: 5 minutes}\n",
        5,
        "clusters[0].gangs.membersWithin",
        "s' is not a duration such as 5m or 1m30s",
    ),
    "ceil dollar": (
        LEAST + "    ceilings: [{monthly: $500}]\n",
        5,
        "clusters[0].ceilings[0].monthly",
        "; write the number alone, without a unit",
    ),
    "ceil text": (
        LEAST + "    ceilings: [{monthly: '500'}]\n",
        5,
        "clusters[0].ceilings[0].monthly",
        "umber, got text; write it without quotes",
    ),
    "ceil comma": (
        LEAST + "    ceilings: [{monthly: '1,500'}]\n",
        5,
        "clusters[0].ceilings[0].monthly",
        "; write the number alone, without a unit",
    ),
    "ceil map": (
        LEAST + "    ceilings: {monthly: 500}\n",
        5,
        "clusters[0].ceilings",
        ", got a mapping; begin each entry with -",
    ),
    "ceil num": (LEAST + "    ceilings: 500\n", 5, "clusters[0].ceilings", "expected a list, got a whole number (500)"),
    "ceil mode": (
        LEAST + "    ceilings: [{monthly: 5, mode: Stop}]\n",
        5,
        "clusters[0].ceilings[0].mode",
        "arn, cheapest, priority, stop, is 'Stop'",
    ),
    "ceil daily": (LEAST + "    ceilings: [{daily: 5}]\n", 5, "clusters[0].ceilings[0].daily", "unknown field"),
    "ceil pools": (
        LEAST + "    ceilings: [{monthly: 5, nodePools: [a]}]\n",
        5,
        "clusters[0].ceilings[0].nodePools",
        "unknown field, did you mean nodePool?",
    ),
    "ceil neg": (
        LEAST + "    ceilings: [{hourly: -5}]\n",
        5,
        "clusters[0].ceilings[0].hourly",
        "0, is -5; an amount of USD, such as 1500",
    ),
    "sleep text": (LEAST + "    sleep: nights\n", 5, "clusters[0].sleep", "expected a mapping, got text"),
    "sleep windows": (
        LEAST + "    sleep: {nodePools: [a], mostNodes: 5, windows: ['daily 19:00-07:00 UTC']}\n",
        5,
        "clusters[0].sleep.windows[0]",
        "expected a mapping, got text",
    ),
    "sleep 7pm": (
        LEAST + "    sleep: {nodePools: [a], mostNodes: 5, windows: [{when: 'daily 7pm-7am'}]}\n",
        5,
        "clusters[0].sleep.windows[0].when",
        "2026-12-24 12:00 - 2026-12-27 07:00 UTC'",
    ),
    "sleep zone": (
        LEAST + "    sleep: {nodePools: [a], mostNodes: 5, windows: [{when: 'daily 19:00-07:00 Berlin'}]}\n",
        5,
        "clusters[0].sleep.windows[0].when",
        "s not a time zone, such as Europe/Berlin",
    ),
    "sleep all": (
        LEAST + "    sleep: {nodePools: '*', mostNodes: 5, windows: [{when: 'daily 19:00-07:00 UTC'}]}\n",
        5,
        "clusters[0].sleep.nodePools",
        "expected a list, got text; write [*]",
    ),
    "sleep most": (
        LEAST + "    sleep: {nodePools: [a], windows: [{when: 'daily 19:00-07:00 UTC'}]}\n",
        5,
        "clusters[0].sleep.mostNodes",
        "required field is missing",
    ),
    "claim ns": (
        LEAST + "    claimRules: [{namespaces: default}]\n",
        5,
        "clusters[0].claimRules[0].namespaces",
        "expected a list, got text; write [default]",
    ),
    "claim map": (
        LEAST + "    claimRules: {namespaces: [a]}\n",
        5,
        "clusters[0].claimRules",
        ", got a mapping; begin each entry with -",
    ),
    "claim re": (
        LEAST + "    claimRules: [{namespaces: ['team-[ab]']}]\n",
        5,
        "clusters[0].claimRules[0].namespaces[0]",
        "e a name, in which * stands for any text",
    ),
    "claim sel": (
        LEAST + "    claimRules: [{podSelector: {app: a}}]\n",
        5,
        "clusters[0].claimRules[0].podSelector.app",
        "unknown field",
    ),
    "claim op": (
        LEAST + "    claimRules: [{podSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}]\n",
        5,
        "clusters[0].claimRules[0].podSelector.matchExpressions[0].operator",
        "In, NotIn, Exists, DoesNotExist, is 'in'",
    ),
    "claim tol": (
        LEAST + "    claimRules: [{tolerates: {key: a}}]\n",
        5,
        "clusters[0].claimRules[0].tolerates",
        "expected text, got a mapping",
    ),
    "repair dur": (
        LEAST + "    repairPolicies: [{condition: Ready, tolerated: 30}]\n",
        5,
        "clusters[0].repairPolicies[0].tolerated",
        "text, got a whole number (30); write 30s",
    ),
    "repair ms": (
        LEAST + "    repairPolicies: [{condition: Ready, tolerated: 30min}]\n",
        5,
        "clusters[0].repairPolicies[0].tolerated",
        " duration such as 10m or 1h30m, or Never",
    ),
    "repair status": (
        LEAST + "    repairPolicies: [{condition: Ready, status: Unknwon}]\n",
        5,
        "clusters[0].repairPolicies[0].status",
        "ne of True, False, Unknown, is 'Unknwon'",
    ),
    "repair bool": (
        LEAST + "    repairPolicies: [{condition: Ready, status: false}]\n",
        5,
        "clusters[0].repairPolicies[0].status",
        " true or false (False); put it in quotes",
    ),
    "repair never": (
        LEAST + "    repairPolicies: [{condition: Ready, tolerated: never}]\n",
        5,
        "clusters[0].repairPolicies[0].tolerated",
        " duration such as 10m or 1h30m, or Never",
    ),
    "dup key": ("region: eu-west-1\n" + LEAST, 2, "", "the key 'region' is written twice"),
    "dup cluster": (LEAST + "  - {name: a, manifests: cluster}\n", 5, "clusters[1].name", "'a' is named twice"),
    "anchor": (
        "base: &b {manifests: cluster}\nregion: eu-west-1\nclusters:\n  - name: a\n    manifests: cluster\n  - {name: b, <<: *b}\n",  # noqa: E501 - one text
        1,
        "base",
        "unknown field",
    ),
    "bad alias": (LEAST + "  - *other\n", 5, "", "not YAML: found undefined alias"),
    "two docs": (
        LEAST + "---\nregion: eu-west-1\nclusters:\n  - name: a\n    manifests: cluster\n",
        0,
        "",
        "expected one document, found 2",
    ),
    "k8s version": (
        LEAST + "    kubernetesVersion: 1.34\n",
        5,
        "clusters[0].kubernetesVersion",
        "t, got a number (1.34); put it in quotes",
    ),
    "k8s v": (
        LEAST + "    kubernetesVersion: v1.34\n",
        5,
        "clusters[0].kubernetesVersion",
        " not a minor version, for example '1.34'",
    ),
    "k8s patch": (
        LEAST + "    kubernetesVersion: 1.34.2\n",
        5,
        "clusters[0].kubernetesVersion",
        " not a minor version, for example '1.34'",
    ),
    "endpoint": (
        LEAST + "    endpoint: 10.0.0.10\n",
        5,
        "clusters[0].endpoint",
        "n address, for example https://10.0.0.10",
    ),
    "endpoint port": (
        LEAST + "    endpoint: 10.0.0.10:6443\n",
        5,
        "clusters[0].endpoint",
        "n address, for example https://10.0.0.10",
    ),
    "cidr": (
        LEAST + "    serviceCidr: 10.100.0.0/16\n",
        5,
        "clusters[0].serviceCidr",
        "unknown field, did you mean serviceCIDR?",
    ),
    "cidr host": (
        LEAST + "    serviceCIDR: 10.100.0.1/16\n",
        5,
        "clusters[0].serviceCIDR",
        " of addresses, for example 10.100.0.0/16",
    ),
    "ca pem": (
        LEAST + "    certificateAuthority: '-----BEGIN CERTIFICATE-----'\n",
        5,
        "clusters[0].certificateAuthority",
        "ficate in base64, as a kubeconfig has it",
    ),
    "topic": ("alarmTopic: alarms\n" + LEAST, 1, "alarmTopic", " of an SNS topic in the install's Region"),
    "secret name": (
        "otlp: {endpoint: 'https://a.example.com/v1/metrics', headersSecret: my-secret}\n" + LEAST,
        1,
        "otlp.headersSecret",
        "t the ARN of a secret in Secrets Manager",
    ),
    "otlp text": ("otlp: https://a.example.com\n" + LEAST, 1, "otlp", "expected a mapping, got text"),
    "otlp url": ("otlp: {url: 'https://a.example.com'}\n" + LEAST, 1, "otlp.url", "unknown field"),
    "boundary": (
        "permissionsBoundary: 'arn:aws:iam::123:policy/x'\n" + LEAST,
        1,
        "permissionsBoundary",
        ":aws:iam::123456789012:policy/developers",
    ),
    "retention": ("logRetentionDays: 10\n" + LEAST, 1, "logRetentionDays", "120, 150, 180, 365, 400, 545, 731, is 10"),
    "retention text": (
        "logRetentionDays: 30d\n" + LEAST,
        1,
        "logRetentionDays",
        "; write the number alone, without a unit",
    ),
    "never": ("logRetentionDays: never\n" + LEAST, 1, "logRetentionDays", "expected a whole number, got text"),
    "tags": ("tags: {team: a}\n" + LEAST, 1, "tags", "anifests, it is one of kind EC2NodeClass"),
    "version": ("version: 1\n" + LEAST, 1, "version", "unknown field, did you mean region?"),
    "name under": ("name: my_install\n" + LEAST, 1, "name", "e letters, digits and dashes, at most 31"),
    "name caps": ("name: Shiplap\n" + LEAST, 1, "name", "e letters, digits and dashes, at most 31"),
    "qualifier": (
        "bootstrapQualifier: 'a b'\n" + LEAST,
        1,
        "bootstrapQualifier",
        " of letters, digits, - and _, at most 10",
    ),
    "json": (
        '{"region": "eu-west-1", "clusters": [{"name": "a", "manifests": "cluster",}]}',
        1,
        "",
        " comma before end of object at column 74",
    ),
    "json comment": ('{"region": "eu-west-1" /* x */}', 1, "", "ON: Expecting ',' delimiter at column 24"),
    "json wrong": (
        '{"region": "eu-west-1", "clusters": [{"name": 5, "manifests": "cluster"}]}',
        1,
        "clusters[0].name",
        "got a whole number (5); put it in quotes",
    ),
    "bom": (
        "\ufeffregion: eu-west-1\nclusters:\n  - name: a\n    manifests: cluster\n    colour: red\n",
        5,
        "clusters[0].colour",
        "unknown field",
    ),
    "crlf": (
        "region: eu-west-1\r\nclusters:\r\n  - name: a\r\n    manifests: cluster\r\n    colour: red\r\n",
        5,
        "clusters[0].colour",
        "unknown field",
    ),
    "empty": ("", 0, "", "expected one document, found 0"),
    "comment": ("# later\n", 0, "", "expected one document, found 0"),
    "list": ("- region: eu-west-1\n", 1, "", "expected a mapping, got a list"),
    "scalar": ("eu-west-1\n", 1, "", "expected a mapping, got text"),
    "html": ("<html></html>\n", 1, "", "expected a mapping, got text"),
    "toml": ('region = "eu-west-1"\n', 1, "", "expected a mapping, got text"),
    "quote": ("region: 'eu-west-1\nclusters: []\n", 3, "", "not YAML: found unexpected end of stream"),
    "colon": ("region:eu-west-1\nclusters: []\n", 2, "", "g values are not allowed in this context"),
    "smart": (
        "region: “eu-west-1”\nclusters: [{name: a, manifests: cluster}]\n",
        1,
        "region",
        "'“eu-west-1”' is not a Region, the nearest are eu-west-1, eu-west-3, us-west-1",
    ),
    "nbsp": ("region:\xa0eu-west-1\nclusters: []\n", 2, "", "g values are not allowed in this context"),
    "ref": ("region: !Ref AWS::Region\nclusters: []\n", 1, "", "termine a constructor for the tag '!Ref'"),
    "null region": ("region:\nclusters:\n", 1, "region", "required field is missing"),
    "number name": (
        "region: eu-west-1\nclusters:\n  - name: 1\n    manifests: cluster\n",
        3,
        "clusters[0].name",
        "got a whole number (1); put it in quotes",
    ),
    "long name": (
        "region: eu-west-1\nclusters:\n  - name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n    manifests: cluster\n",  # noqa: E501 - one text
        3,
        "clusters[0].name",
        "is not the name of an EKS cluster",
    ),
    "dot name": (
        "region: eu-west-1\nclusters:\n  - name: a.b\n    manifests: cluster\n",
        3,
        "clusters[0].name",
        "'a.b' is not the name of an EKS cluster",
    ),
    "glob": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifests: pools/*.yaml\n",
        4,
        "clusters[0].manifests",
        "pools/*.yaml does not exist",
    ),
    "list manifests": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifests: [a.yaml, b.yaml]\n",
        4,
        "clusters[0].manifests",
        "expected text, got a list",
    ),
    "url": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifests: https://example.com/a.yaml\n",
        4,
        "clusters[0].manifests",
        "https:/example.com/a.yaml does not exist",
    ),
    "home": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifests: ~/pools\n",
        4,
        "clusters[0].manifests",
        "~/pools does not exist",
    ),
    "Cluster": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifests: Cluster\n",
        4,
        "clusters[0].manifests",
        "Cluster does not exist",
    ),
    "manifest": (
        "region: eu-west-1\nclusters:\n  - name: a\n    manifest: cluster\n",
        3,
        "clusters[0].manifests",
        "required field is missing",
    ),
    "volume key": (
        LEAST + "    volumeKeys: [my-key]\n",
        5,
        "clusters[0].volumeKeys[0]",
        "is not the id, ARN or alias of a KMS key",
    ),
    "key text": (
        LEAST + "    volumeKeys: alias/ebs\n",
        5,
        "clusters[0].volumeKeys",
        "expected a list, got text; write [alias/ebs]",
    ),
    "owner name": (
        LEAST + "    imageOwners: [canonical]\n",
        5,
        "clusters[0].imageOwners[0]",
        " digits, self, amazon or aws-marketplace",
    ),
    "subnet name": (
        LEAST + "    subnets: [private-a]\n",
        5,
        "clusters[0].subnets[0]",
        "e-a' is not the id of a subnet, subnet-…",
    ),
    "lease": (
        LEAST + "    karpenterLease: karpenter-leader-election\n",
        5,
        "clusters[0].karpenterLease",
        "ection' is not NAMESPACE/NAME of a Lease",
    ),
    "snapshot": (
        LEAST + "    volumeSnapshots: [snapshot-1]\n",
        5,
        "clusters[0].volumeSnapshots[0]",
        "t-1' is not the id of a snapshot, snap-…",
    ),
    "improve": (
        LEAST + "    improveSeconds: 1m\n",
        5,
        "clusters[0].improveSeconds",
        "; write the number alone, without a unit",
    ),
    "improve most": (
        LEAST + "    improveSeconds: 120\n",
        5,
        "clusters[0].improveSeconds",
        "must be from 0 to 60, is 120",
    ),
    "eni": (
        LEAST + "    reservedEnis: 1\n",
        5,
        "clusters[0].reservedEnis",
        "unknown field, did you mean reservedENIs?",
    ),
    "spread": (
        LEAST + "    podTopologySpread: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]\n",
        5,
        "clusters[0].podTopologySpread",
        "expected a mapping, got a list",
    ),
    "spread type": (
        LEAST
        + "    podTopologySpread: {defaultConstraints: [{maxSkew: '1', topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}\n",  # noqa: E501 - one text
        5,
        "clusters[0].podTopologySpread.defaultConstraints[0].maxSkew",
        "umber, got text; write it without quotes",
    ),
    "unsat": (
        LEAST
        + "    podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: doNotSchedule}]}\n",  # noqa: E501 - one text
        5,
        "clusters[0].podTopologySpread.defaultConstraints[0].whenUnsatisfiable",
        "dule, ScheduleAnyway, is 'doNotSchedule'",
    ),
    "commit": (
        "commitments: {share: 0.8}\n" + LEAST,
        1,
        "commitments.share",
        "xt, got a number (0.8); put it in quotes",
    ),
    "commit share": (
        "commitments: {countedBy: eu-west-1/shiplap, share: 80}\n" + LEAST,
        1,
        "commitments.share",
        "text, got a whole number (80); write 80%",
    ),
    "commit date": (
        "commitments: {countedBy: eu-west-1/shiplap, written: [{dollarsPerHour: 1, discount: 28%, end: 30.06.2027}]}\n"
        + LEAST,
        1,
        "commitments.written[0].end",
        ".2027' is not a date, such as 2027-06-30",
    ),
}
"""The text of the file, and of the first problem: its line, its field and what is said."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_where_it_is(mistake: str, tmp_path: Path) -> None:
    text, line, field, said = MISTAKES[mistake]
    file = tmp_path / "shiplap.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(InvalidInput) as caught:
        read(file)
    problem = getattr(caught.value, "problems", (caught.value,))[0]
    assert (problem.source, problem.line, problem.field) == (str(file), line, field)
    assert said in problem.reason
    assert "\n" not in str(problem)


def test_what_the_mistakes_are_made_in_is_sound(tmp_path: Path) -> None:
    (tmp_path / "shiplap.yaml").write_text(LEAST)
    assert read(tmp_path / "shiplap.yaml").clusters
