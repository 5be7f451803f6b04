"""shiplap.yaml: what is compiled from it, and how its mistakes are told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.settings import ClusterSettings, OtlpSettings, Settings
from shiplap_cdk.install_document import inspect_install, read
from shiplap_cdk.install_keys import ClusterDocument
from tests.infra.written_installs import WRITTEN, refusal, written

INSTALL = Path(__file__).parent / "install"


def test_clusters_are_sorted_and_carry_their_manifests() -> None:
    install = read(INSTALL / "shiplap.yaml")

    assert [cluster.name for cluster in install.clusters] == ["edge", "production"]
    production = install.settings().cluster("production")
    assert production.region == "eu-west-1"
    assert production.vm_memory_overhead_percent == 0.06
    assert [pool.metadata.name for pool in production.manifests.node_pools] == ["general"]


def test_settings_survive_the_layer() -> None:
    compiled = read(INSTALL / "shiplap.yaml").settings()

    assert msgspec.json.decode(msgspec.json.encode(compiled), type=Settings) == compiled


def test_every_field_of_cluster_settings_can_be_written() -> None:
    """A setting that cannot be written would silently keep its default."""
    elsewhere = {"region", "install", "network"}  # of the install, and of `vpc`
    elsewhere |= {"live_manifests", "allowed"}  # of `manifests: cluster`, and the lists beside it
    elsewhere |= {"policies"}  # keys of optional features
    assert set(ClusterSettings.__struct_fields__) - elsewhere <= set(ClusterDocument.__struct_fields__)


def test_disruption_is_set_per_cluster_and_checked(folder: Path) -> None:
    (cluster,) = written(folder, WRITTEN + "    disruption: {enabled: false, settleSeconds: 60}\n").clusters
    assert cluster.settings.disruption == DisruptionSettings(enabled=False, settle_s=60.0)
    error = refusal(folder, WRITTEN + "    disruption: {settleSeconds: -1}\n")
    assert error.field == "clusters[0].disruption.settleSeconds"
    assert "must not be negative" in error.reason


def test_a_cluster_is_paused_by_one_line(folder: Path) -> None:
    (cluster,) = written(folder, WRITTEN + "    paused: true\n").clusters
    assert cluster.settings.paused


@pytest.mark.parametrize(
    "topic", ["platform-alarms", "arn:aws:sns:us-east-1:123456789012:alarms", "arn:aws:sqs:eu-west-1:123456789012:a"]
)
def test_alarms_are_told_to_a_topic_of_the_same_region(folder: Path, topic: str) -> None:
    error = refusal(folder, f"alarmTopic: {topic}\n" + WRITTEN)
    assert (error.field, error.line) == ("alarmTopic", 1)


OTLP = "otlp: {endpoint: 'https://otel.example.com/v1/metrics', headersSecret: 'SECRET'}\n"
OTLP_SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:otlp-a1b2c3"


def test_metrics_may_go_to_a_collector(folder: Path) -> None:
    assert written(folder, WRITTEN).settings().otlp is None

    otlp = written(folder, WRITTEN + OTLP.replace("SECRET", OTLP_SECRET)).settings().otlp

    assert otlp == OtlpSettings("https://otel.example.com/v1/metrics", OTLP_SECRET)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (OTLP.replace("https", "http").replace("SECRET", ""), "otlp.endpoint"),
        (OTLP.replace("otel.", "user:word@otel.").replace("SECRET", ""), "otlp.endpoint"),
        (OTLP.replace("metrics'", "metrics?key=abc'").replace("SECRET", ""), "otlp.endpoint"),
        (OTLP.replace("SECRET", "my-token"), "otlp.headersSecret"),
    ],
)
def test_a_collector_without_encryption_or_with_a_password_is_refused(folder: Path, line: str, field: str) -> None:
    assert refusal(folder, WRITTEN + line).field == field


def test_a_cluster_with_its_own_endpoint_gets_no_access_entry() -> None:
    access = {cluster.name: cluster.access_entry for cluster in read(INSTALL / "shiplap.yaml").clusters}

    assert access == {"edge": False, "production": True}


def test_node_roles_are_those_of_manifests_and_those_written() -> None:
    edge, production = read(INSTALL / "shiplap.yaml").clusters

    assert edge.node_roles == ("edge-nodes", "path/windows-nodes")
    assert production.node_roles == (production.own_node_role,)


def test_an_unknown_field_is_named_with_file_line_and_a_guess(folder: Path) -> None:
    error = refusal(folder, WRITTEN + "    acces: none\n")

    assert (error.field, error.line) == ("clusters[0].acces", 5)
    assert "did you mean access" in error.reason
    assert str(error).startswith(f"{folder / 'shiplap.yaml'}:5: ")


def test_all_problems_are_told_at_once(folder: Path) -> None:
    text = WRITTEN.replace("eu-west-1", "Ireland") + "    placement: sometimes\n    joinTimeoutSeconds: 5\n"
    with pytest.raises(InvalidManifests) as caught:
        written(folder, text)

    assert [(problem.field, problem.line) for problem in caught.value.problems] == [
        ("region", 1),
        ("clusters[0].placement", 5),
        ("clusters[0].joinTimeoutSeconds", 6),
    ]


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ("    access: sometimes", "access", "must be one of entry, none"),
        ("    prefixDelegation: maybe", "prefixDelegation", "must be one of auto, on, off"),
        ("    vmMemoryOverheadPercent: 7.5", "vmMemoryOverheadPercent", "must be below 1, is 7.5; a fraction"),
        ("    unprovenPodNodes: -1", "unprovenPodNodes", "must not be negative"),
        ("    improveSeconds: -1", "improveSeconds", "must not be negative"),
        ("    vmMemoryOverheadPercent: much", "vmMemoryOverheadPercent", "expected a number, got text"),
        ("    vmMemoryOverheadPercent: no", "vmMemoryOverheadPercent", "expected a number, got true or false (False)"),
        ("    disruption: {moveCost: .nan}", "disruption.moveCost", "must be a finite number, is nan"),
        ("    disruption: {settleSeconds: .inf}", "disruption.settleSeconds", "must be a finite number, is inf"),
        (f"    disruption: {{moveCost: 1{'0' * 20}}}", "disruption.moveCost", "must be a whole number of 64 bits"),
        ("    podTopologySpread: {defaultingType: Some}", "podTopologySpread.defaultingType", "Some"),
        (
            "    podTopologySpread: {defaultConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: Never}]}",
            "podTopologySpread.defaultConstraints[0].maxSkew",
            "must be from 1 to 2147483647, is 0",
        ),
        ("    reservedENIs: -1", "reservedENIs", "must not be negative"),
        ("    nodeRoles: [not a role!]", "nodeRoles", "'not a role!' is not the name of an IAM role"),
        (f"    nodeRoles: [{'r' * 65}]", "nodeRoles", "at most 64"),
        ("    nodeRoles: ['arn:aws:iam::123456789012:role/nodes']", "nodeRoles", "is not the name of an IAM role"),
        ("    volumeKeys: [not a key]", "volumeKeys[0]", "'not a key' is not the id, ARN or alias of a KMS key"),
        (
            f"    vpc: {{subnets: [{', '.join(f'subnet-{n:08x}' for n in range(17))}], securityGroups: [sg-00000001]}}",
            "vpc.subnets",
            "at most 16 are allowed, there are 17",
        ),
        (
            f"    vpc: {{subnets: [subnet-00000001], securityGroups: [{', '.join(f'sg-{n:08x}' for n in range(6))}]}}",
            "vpc.securityGroups",
            "at most 5 are allowed, there are 6",
        ),
        ("    claimRules: [{}]", "claimRules[0]", "says nothing"),
        ("    claimRules: [{namespaces: ['?']}]", "claimRules[0].namespaces[0]", "must be a name"),
        ("    claimRules: [{namespace: a}]", "claimRules[0].namespace", "did you mean namespaces"),
        ("    endpoint: nowhere", "endpoint", "is not an address"),
        ("    endpoint: http://10.0.0.1", "endpoint", "must be https"),
        ("    token: abc", "token", "only for a cluster on this machine"),
        ("    vpc: {subnets: [], securityGroups: [sg-00000001]}", "vpc.subnets", "at least 1 must be there"),
        (
            "    vpc: {subnets: [sg-00000001], securityGroups: [sg-00000001]}",
            "vpc.subnets[0]",
            "is not the id of a subnet",
        ),
        (
            "    vpc: {subnets: [here], securityGroups: [sg-00000001]}",
            "vpc.subnets[0]",
            "'here' is not the id of a subnet",
        ),
        ("    vpc: {subnets: [subnet-00000001]}", "vpc.securityGroups", "required field is missing"),
        ('    endpoint: "https://[::1"', "endpoint", "is not an address"),
        ("    endpoint: https://10.0.0.10:99999", "endpoint", "is not an address"),
        ('    certificateAuthority: "%%%"', "certificateAuthority", "base64"),
        ('    kubernetesVersion: "v1"', "kubernetesVersion", "minor version"),
        ("    serviceCIDR: 10.100.0.0/99", "serviceCIDR", "range of addresses"),
        (
            "    vpc: {subnets: [subnet-00000001, subnet-00000001], securityGroups: [sg-00000001]}",
            "vpc.subnets",
            "twice",
        ),
    ],
)
def test_a_wrong_field_of_a_cluster(folder: Path, line: str, field: str, reason: str) -> None:
    error = refusal(folder, WRITTEN + line + "\n")

    assert error.field == f"clusters[0].{field}"
    assert error.line == 5
    assert reason in error.reason


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("region: eu-west-1\nclusters: []\n", "clusters", "at least one"),
        (WRITTEN + "name: Two Words\n", "name", "is not a name of lower-case letters, digits and dashes"),
        (WRITTEN + "account: '12'\n", "account", "is not 12 digits"),
        (WRITTEN + "account: 123456789012\n", "account", "put it in quotes"),
        (WRITTEN + "logRetentionDays: 8\n", "logRetentionDays", "must be one of"),
        (WRITTEN + "recordRetentionDays: 0\n", "recordRetentionDays", "must be from 1 to 2147483647"),
        (WRITTEN + "recordRetentionDays: 2147483648\n", "recordRetentionDays", "must be from 1 to 2147483647"),
        (WRITTEN + 'otlp: {endpoint: "https://[::1"}\n', "otlp.endpoint", "is not an address"),
        (WRITTEN + 'otlp: {endpoint: "https://collector:port"}\n', "otlp.endpoint", "is not an address"),
        (WRITTEN + "  - name: edge\n    manifests: manifests\n", "clusters[1].name", "named twice"),
        (WRITTEN.replace("edge", "-edge"), "clusters[0].name", "is not the name of an EKS cluster"),
        (WRITTEN.replace(" manifests\n", " nowhere\n"), "clusters[0].manifests", "does not exist"),
    ],
)
def test_a_wrong_install(folder: Path, text: str, field: str, reason: str) -> None:
    error = refusal(folder, text)

    assert error.field == field
    assert error.line > 0
    assert reason in error.reason


SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:edge-kubeconfig-AbCdEf"


def test_a_cluster_outside_eks_may_be_entered_by_a_secret(folder: Path) -> None:
    endpoint = "    endpoint: https://10.1.0.10\n"
    (cluster,) = written(folder, WRITTEN + endpoint + f"    kubeconfigSecret: {SECRET}\n").clusters
    assert cluster.settings.kubeconfig_secret == SECRET
    assert not cluster.access_entry
    for text, field, reason in (
        (f"    kubeconfigSecret: {SECRET}\n", "kubeconfigSecret", "give its `endpoint` too"),
        (endpoint + "    kubeconfigSecret: edge\n", "kubeconfigSecret", "is not the ARN of a secret"),
    ):
        error = refusal(folder, WRITTEN + text)
        assert error.field == f"clusters[0].{field}"
        assert reason in error.reason


def vpc(number: int, name: str = "") -> str:
    named = f", name: {name}" if name else ""
    return f"    vpc: {{subnets: [subnet-0000000{number}], securityGroups: [sg-0000000{number}]{named}}}\n"


OTHER = "  - name: other\n    manifests: manifests\n"


@pytest.mark.parametrize(
    ("first", "second", "networks"),
    [
        ("", "", {"": ["edge", "other"]}),
        (vpc(1), vpc(1), {"": ["edge", "other"]}),
        ("", vpc(1, "blue"), {"": ["edge"], "blue": ["other"]}),
        (vpc(2, "red"), vpc(1), {"": ["other"], "red": ["edge"]}),
    ],
    ids=["public", "one VPC", "public and a VPC", "two VPCs"],
)
def test_clusters_of_one_network_form_a_group(
    folder: Path, first: str, second: str, networks: dict[str, list[str]]
) -> None:
    install = written(folder, WRITTEN + first + OTHER + second)

    assert {name: [cluster.name for cluster in group] for name, group in install.networks.items()} == networks
    told = {cluster.name: cluster.network for cluster in install.settings().clusters}
    assert told == {cluster: name for name, clusters in networks.items() for cluster in clusters}


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("", vpc(1), "the network without a name is that of 'edge'"),
        (vpc(1), vpc(2), "the network without a name is that of 'edge'"),
        (
            "",
            vpc(1, "blue") + OTHER.replace("other", "third") + vpc(2, "blue"),
            "the network 'blue' is that of 'other'",
        ),
        ("", vpc(1, "Blue-1"), "is not a name of lower-case letters and digits"),
        ("", vpc(1, "watch"), "is taken"),
    ],
)
def test_a_network_that_cannot_be_told_from_another_is_refused(
    folder: Path, first: str, second: str, reason: str
) -> None:
    error = refusal(folder, WRITTEN + first + OTHER + second)

    assert error.field in ("clusters[1].vpc", "clusters[1].vpc.name", "clusters[2].vpc")
    assert reason in error.reason


def test_one_network_of_an_install_goes_without_a_name(folder: Path) -> None:
    error = refusal(folder, WRITTEN + vpc(1, "red") + OTHER + vpc(2, "blue"))

    assert error.field == "clusters[0].vpc"
    assert "goes without a name" in error.reason


def test_volumes_may_use_keys_that_no_manifest_names(folder: Path) -> None:
    (cluster,) = written(folder, WRITTEN + "    volumeKeys: [alias/ebs-default]\n").clusters

    assert "alias/ebs-default" in cluster.volume_keys


NODE_CLASS = """\
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: {name}}}
spec:
  amiSelectorTerms: [{{alias: {alias}@latest}}]
  role: {role}
  subnetSelectorTerms: [{{tags: {{a: b}}}}]
  securityGroupSelectorTerms: [{{tags: {{a: b}}}}]
"""


@pytest.mark.parametrize("key", ["alias/volumes", "mrk-0a1b2c", "1234abcd-12ab-34cd-56ef-1234567890ab"])
def test_keys_are_named_by_alias_or_id(folder: Path, key: str) -> None:
    arn = f"arn:aws:kms:eu-west-1:123456789012:{key if '/' in key else f'key/{key}'}"

    (cluster,) = written(folder, WRITTEN + f"    volumeKeys: [{key}, '{arn}']\n").clusters

    assert cluster.volume_keys >= {key, arn}


def test_a_role_of_a_manifest_that_iam_cannot_have_is_refused_with_its_line(folder: Path) -> None:
    nodes = folder / "manifests" / "nodes.yaml"
    text = nodes.read_text()
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("role:")][:1]
    nodes.write_text(text.replace(line, f"  role: {'r' * 65}", 1))

    error = refusal(folder, WRITTEN)

    assert isinstance(error, InvalidManifests)
    assert f"{nodes}:{text.splitlines().index(line) + 1}: EC2NodeClass/default: spec.role: " in str(error.problems[0])
    assert "at most 64" in str(error.problems[0])


PROFILE = NODE_CLASS.format(name="group", alias="al2023", role="r").replace("role: r", "instanceProfile: of-group")


def test_an_instance_profile_whose_role_nobody_may_pass_is_refused(folder: Path) -> None:
    (folder / "manifests" / "nodes.yaml").write_text(PROFILE)

    error = refusal(folder, WRITTEN)

    assert (error.field, error.document) == ("spec.instanceProfile", "EC2NodeClass/group")
    assert error.reason.endswith("list the role in `nodeRoles` of cluster 'edge'")
    assert written(folder, WRITTEN + "    nodeRoles: [group-role]\n").clusters[0].node_roles == ("group-role",)
    assert refusal(folder, WRITTEN + "    nodeRoles: ['<its role>']\n").field == "clusters[0].nodeRoles"


def test_an_instance_profile_beside_a_role_is_warned_of_until_its_role_is_listed(folder: Path) -> None:
    (folder / "manifests" / "group.yaml").write_text(PROFILE)
    for line, told in (("", [("spec.instanceProfile", 7)]), ("    nodeRoles: [group-role]\n", [])):
        written(folder, WRITTEN + line)
        found = inspect_install(folder / "shiplap.yaml").warnings
        assert [(warning.field, warning.line) for warning in found] == told
        assert all("to EC2 unless it is edge-nodes: " in warning.reason for warning in found)


def test_a_role_for_windows_and_linux_nodes_is_refused_with_both_lines(folder: Path) -> None:
    """EKS lets a role join by one access entry, whose type is of one system."""
    classes = folder / "manifests" / "windows.yaml"
    linux = NODE_CLASS.format(name="linux", alias="al2023", role="shared")
    windows = NODE_CLASS.format(name="windows", alias="windows2022", role="shared")
    classes.write_text(linux + windows)

    error = refusal(folder, WRITTEN)

    assert (error.source, error.field, error.line) == (str(classes), "spec.role", 16)
    assert f"EC2NodeClass 'linux' ({classes}:7)" in error.reason
    classes.write_text(linux + windows.replace("shared", "of-windows"))
    written(folder, WRITTEN)


def test_the_stacks_node_role_joins_as_what_its_nodes_run(folder: Path) -> None:
    (linux,) = written(folder, WRITTEN).clusters
    text = NODE_CLASS.format(name="windows", alias="windows2022", role="shiplap-node-edge")
    (folder / "manifests" / "windows.yaml").write_text(text)
    (windows,) = written(folder, WRITTEN).clusters

    assert (linux.node_entry_type, windows.node_entry_type) == ("EC2_LINUX", "EC2_WINDOWS")


def test_a_token_is_fine_for_a_cluster_on_this_machine(folder: Path) -> None:
    install = written(folder, WRITTEN + "    endpoint: http://127.0.0.1:6443\n    token: abc\n")

    assert install.settings().cluster("edge").token == "abc"


def test_a_wrong_manifest_stops_the_reading_and_names_its_own_file(folder: Path) -> None:
    manifest = folder / "manifests" / "nodes.yaml"
    manifest.write_text(manifest.read_text().replace("operator: In", "operator: Inn"))

    error = refusal(folder, WRITTEN)

    assert error.source == str(manifest)
    assert "operator" in error.field


def test_more_than_one_document(folder: Path) -> None:
    assert "expected one document, found 2" in str(refusal(folder, WRITTEN + "---\n" + WRITTEN))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"does not exist; `shiplap init` writes a first one"):
        read(tmp_path / "shiplap.yaml")


LIVE = """\
region: eu-west-1
clusters:
  - name: edge
    manifests: cluster
    nodeRoles: [node, shiplap-node-edge]
    instanceProfiles: [own]
    imageParameters: [/images/node]
    volumeKeys: [alias/volumes]
    subnets: [subnet-0123abcd]
    securityGroups: [sg-0123abcd]
    imageOwners: ['111111111111']
"""


class TestManifestsOfTheCluster:
    def test_the_functions_read_them_and_know_what_may_be_named(self, folder: Path) -> None:
        settings = written(folder, LIVE).settings().cluster("edge")

        assert settings.live_manifests
        assert settings.manifests.node_pools == ()
        assert settings.karpenter_lease == "kube-system/karpenter-leader-election"
        assert settings.allowed == AllowedResources(
            node_roles=("node", "shiplap-node-edge"),
            instance_profiles=("own",),
            image_parameters=("/images/node",),
            volume_keys=("alias/volumes",),
            subnets=("subnet-0123abcd",),
            security_groups=("sg-0123abcd",),
            image_owners=("111111111111",),
        )

    def test_the_stack_knows_what_launches_will_need(self, folder: Path) -> None:
        (cluster,) = written(folder, LIVE).clusters

        assert cluster.roles_in_manifests == {"node", "shiplap-node-edge"}
        assert cluster.has_own_node_role
        assert cluster.image_parameters == {"images/node"}
        assert cluster.volume_keys == {"alias/volumes"}

    def test_a_folder_of_that_name_is_not_passed_over(self, folder: Path) -> None:
        (folder / "cluster").mkdir()
        error = refusal(folder, LIVE)

        assert error.field == "clusters[0].manifests"
        assert "write ./cluster" in error.reason

    def test_bounds_are_not_for_files(self, folder: Path) -> None:
        error = refusal(folder, WRITTEN + "    instanceProfiles: [own]\n")

        assert error.field == "clusters[0].instanceProfiles"
        assert "only for `manifests: cluster`" in error.reason

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("subnets", "[vpc-1]"),
            ("securityGroups", "[default]"),
            ("imageOwners", "[me]"),
            ("volumeSnapshots", "[vol-1]"),
            ("capacityReservations", "[mine]"),
            ("placementGroups", "[mine]"),
            ("karpenterLease", "karpenter-leader-election"),
        ],
    )
    def test_bounds_are_ids(self, folder: Path, field: str, value: str) -> None:
        lines = [line for line in LIVE.splitlines() if not line.strip().startswith(f"{field}:")]
        error = refusal(folder, "\n".join([*lines, f"    {field}: {value}", ""]))

        assert error.field.removesuffix("[0]") == f"clusters[0].{field}"


def _problems_in(folder: Path, text: str) -> tuple[InvalidInput, ...]:
    with pytest.raises(InvalidManifests) as caught:
        written(folder, text)
    return tuple(caught.value.problems)


@pytest.mark.parametrize("word", ["off", "'off'", "Off", "false"])
def test_off_is_a_word_with_and_without_quotes(folder: Path, word: str) -> None:
    text = f"    gangs: {{mode: {word}}}\n    spotRisk: {{mode: {word}}}\n    prefixDelegation: {word}\n"
    (cluster,) = written(folder, WRITTEN + text).clusters
    assert cluster.settings.policies_on == ()
    assert cluster.settings.prefix_delegation == "off"


def test_on_is_a_word_too_where_it_is_a_choice(folder: Path) -> None:
    (cluster,) = written(folder, WRITTEN + "    prefixDelegation: on\n").clusters
    assert cluster.settings.prefix_delegation == "on"
    assert refusal(folder, WRITTEN + "    spotRisk: {mode: on}\n").field == "clusters[0].spotRisk.mode"
