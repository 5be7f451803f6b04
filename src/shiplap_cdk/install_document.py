"""Reads `shiplap.yaml`, the one file a platform team writes, and everything it refers to.

Mistakes stop the synth with file, line, field and reason. What the functions need is compiled to `shiplap.settings`;
the rest (network, access, retention) shapes the stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shiplap.aws.instance_profiles import identity_path, role_name
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances.catalog.ami_families import family_of
from shiplap.kubernetes.labels import NORMALIZED, ZONE
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests, NodePool
from shiplap.manifests.decoding import MISSING, UNKNOWN, Problem, decode, field_name
from shiplap.manifests.decoding import Path as Where
from shiplap.manifests.files.documents import TEMPLATE_SIGN, Document, read_documents, read_text, text_of
from shiplap.manifests.files.loading import ManifestReport, inspect_documents
from shiplap.manifests.files.manifest_folders import FoundDocuments, find_documents
from shiplap.manifests.live.allowed_resources import is_public_parameter
from shiplap.manifests.validation.nodeclass_rules import is_role_name, not_a_role
from shiplap.policies.policy_settings import chosen
from shiplap.regions import exists
from shiplap.settings import ClusterSettings, OtlpSettings, Settings
from shiplap_cdk.install_keys import LIVE, ClusterDocument, InstallDocument, of_clusters, of_installs, written_install
from shiplap_cdk.install_rules import install_problems, key_of, other_partition, own_node_role
from shiplap_cdk.policy_document import documents


class ServedCluster(msgspec.Struct, frozen=True):
    """A cluster the stack serves: what was written, and what the functions are told."""

    document: ClusterDocument
    settings: ClusterSettings

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.document.name

    @property
    def access_entry(self) -> bool:
        """True if the stack makes EKS access entries for this cluster."""
        return self.document.access == "entry"

    @property
    def asks_eks(self) -> bool:
        """True if functions ask EKS about this cluster: for the address of its API server, or for its ARN."""
        return not self.document.endpoint or self.document.zonal_shift

    @property
    def own_node_role(self) -> str:
        """By this name an EC2NodeClass asks for the node role that the stack makes."""
        return own_node_role(self.name)

    @property
    def has_own_node_role(self) -> bool:
        """True if the stack makes a node role: an EC2NodeClass, or `nodeRoles`, names it."""
        return self.own_node_role in self.node_roles

    def identity_path(self, *below: str) -> str:
        """The path in IAM of what the stack makes for the nodes of this cluster; no other install's is below it."""
        return identity_path(self.settings.install, self.settings.region, self.name, *below)

    @property
    def node_entry_type(self) -> str:
        """The type of the access entry that lets nodes with the stack's role join, empty if the stack makes none."""
        if not self.access_entry:
            return ""
        own = [item for item in self.settings.manifests.node_classes if item.spec.role == self.own_node_role]
        return "EC2_WINDOWS" if any(_is_windows(item) for item in own) else "EC2_LINUX"

    @property
    def is_ipv6(self) -> bool:
        """True if pods and services have IPv6 addresses: EKS gives them by the family of the service range."""
        return ":" in self.settings.service_cidr

    @property
    def profile_roles(self) -> tuple[str, ...]:
        """Names of the roles that the stack makes an instance profile for, sorted; IAM takes no account of paths."""
        named = self.roles_in_manifests | ({self.own_node_role} if self.has_own_node_role else set())
        return tuple(sorted({role_name(role) for role in named}))

    @property
    def roles_in_manifests(self) -> frozenset[str]:
        """Roles named by EC2NodeClasses, or that they may name."""
        if self.document.reads_cluster:
            return frozenset(self.document.node_roles)
        return frozenset({node_class.spec.role for node_class in self.settings.manifests.node_classes} - {""})

    @property
    def node_roles(self) -> tuple[str, ...]:
        """All roles nodes of this cluster may carry, sorted."""
        return tuple(sorted(self.roles_in_manifests | set(self.document.node_roles)))

    @property
    def image_parameters(self) -> frozenset[str]:
        """SSM parameters that EC2NodeClasses find images by: names, without a leading slash, or ARNs."""
        terms = [term for item in self.settings.manifests.node_classes for term in item.spec.ami_selector_terms]
        names = {term.ssm_parameter.removeprefix("/") for term in terms}
        names |= {name.removeprefix("/") for name in self.document.image_parameters}
        return frozenset(name for name in names if name and not is_public_parameter(name))

    @property
    def volume_keys(self) -> frozenset[str]:
        """KMS keys that volumes are encrypted with: ids, ARNs or aliases."""
        specs = [item.spec for item in self.settings.manifests.node_classes]
        devices = [mapping.ebs for spec in specs for mapping in spec.block_device_mappings]
        named = {ebs.kms_key_id for ebs in devices if ebs is not None and ebs.kms_key_id}
        return frozenset(named | set(self.document.volume_keys))


class InstallConfig(msgspec.Struct, frozen=True):
    """Everything the stack is built from; clusters sorted by name, and the file that says so."""

    document: InstallDocument
    clusters: tuple[ServedCluster, ...]
    source: Document

    @property
    def networks(self) -> dict[str, tuple[ServedCluster, ...]]:
        """Clusters by the name of their network group, sorted. All clusters of a group have the same `vpc`, or none."""
        names = sorted({cluster.settings.network for cluster in self.clusters})
        return {name: tuple(cluster for cluster in self.clusters if cluster.settings.network == name) for name in names}

    @property
    def audited(self) -> tuple[ServedCluster, ...]:
        """Clusters whose audit log is a source of events."""
        return tuple(cluster for cluster in self.clusters if cluster.document.audit)

    def settings(self) -> Settings:
        """Return the settings that are compiled into the settings layer."""
        written = self.document.otlp
        otlp = OtlpSettings(written.endpoint, written.headers_secret) if written is not None else None
        clusters = tuple(cluster.settings for cluster in self.clusters)
        return Settings(clusters, self.document.cluster_metrics, otlp)

    def refusal(self, where: Where, reason: str) -> InvalidInput:
        """Return the error for a field of the file."""
        return _refusal(self.source, where, reason)


MISSING_MANIFESTS = "does not exist; `shiplap init` writes examples there"
"""The end of the reason against `manifests` of a cluster whose file or folder is not there."""


_NO_PATH = {
    "://": "does not exist; fetch it before, and name the file",
    "*": "does not exist; patterns are not expanded, name the folder",
    "~": "does not exist; ~ is not expanded, write the path from the folder of this file",
    "$": "does not exist; variables are not filled in, write the path",
}
"""Signs of what people write for a path, and the end of the reason against it."""


class FoundManifests(NamedTuple):
    """The manifests at one path: as they are written, and as they were judged."""

    documents: tuple[Document, ...]
    report: ManifestReport

    @property
    def has_all_node_pools(self) -> bool:
        """True if each NodePool could be read, sound or not: a name that is missing is written nowhere."""
        written = sum(document.data.get("kind") == "NodePool" for document in self.documents)
        readable = all(problem.document for problem in self.report.problems)
        return readable and written == len(self.report.manifests.node_pools)

    def node_classes(self) -> Iterator[tuple[Document, EC2NodeClass]]:
        """EC2NodeClasses, with where they are written."""
        for document in self.documents:
            if document.data.get("kind") == "EC2NodeClass":
                node_class, _ = decode(document.data, EC2NodeClass)
                if node_class is not None:
                    yield document, node_class


class ReadInstall(NamedTuple):
    """What a shiplap.yaml says: the install where nothing is wrong, else None and every problem.

    `manifests` are those of its clusters, path by path; their problems are among the others. `warnings` are about what
    is allowed and surely not meant.
    """

    install: InstallConfig | None
    problems: tuple[InvalidInput, ...]
    manifests: tuple[FoundManifests, ...]
    warnings: tuple[InvalidInput, ...] = ()


def in_group(name: str, group: str) -> str:
    """The name of a function or queue of a network group, within its install."""
    return f"{name}-{group}" if group else name


def read(path: Path) -> InstallConfig:
    """Read shiplap.yaml and the manifests of its clusters.

    Raises:
        InvalidInput: the file cannot be read or is not YAML.
        InvalidManifests: it, or a manifest it refers to, says something wrong; holds all problems of all files.
    """
    found = inspect_install(path)
    if found.install is None:
        raise InvalidManifests(found.problems)
    return found.install


def inspect_install(path: Path) -> ReadInstall:
    """Read shiplap.yaml and the manifests of its clusters; what is wrong in them is reported, not raised.

    Problems of the file come first, by line, then those of manifests. One kind hides no other kind: of a field that
    cannot be read only what depends on it is left open.

    Raises:
        InvalidInput: the file cannot be read or is not YAML.
    """
    source = _document_in(path)
    install, unplaced = decode(source.data, written_install())
    problems = [(where, _placed(where, reason)) for where, reason in unplaced]
    refused = {where for where, _ in problems}
    readable = install or _readable(source.data, refused)
    folders = _ManifestFolders(path.parent)
    in_manifests: list[InvalidInput] = []
    if readable is not None:
        problems += [each for each in _of_rules(readable, refused) if not _follows(each[0], refused)]
        for index, cluster in enumerate(readable.clusters):
            own = {where[2:] for where in refused if where[:2] == ("clusters", index)}
            of_file, of_manifests = _problems_with_manifests(readable, cluster, folders, own)
            problems += [(("clusters", index, *where), reason) for where, reason in of_file]
            in_manifests += of_manifests
    found = [*(_refusal(source, where, reason) for where, reason in problems), *in_manifests]
    files = list(dict.fromkeys(each.source for each in found))
    found.sort(key=lambda each: (files.index(each.source), each.line))
    told = tuple({(each.source, each.line, each.what): each for each in reversed(found)}.values())[::-1]
    if install is None or told:
        return ReadInstall(None, told, folders.all)
    clusters = (_served(cluster, install, folders) for cluster in install.clusters)
    config = InstallConfig(install, tuple(sorted(clusters, key=lambda each: each.name)), source)
    warnings = {(each.source, each.line, each.what): each for each in _warnings(install, folders)}
    return ReadInstall(config, (), folders.all, tuple(warnings.values()))


def _document_in(path: Path) -> Document:
    """The one document of a file. Raises InvalidInput."""
    if not _is_there(path):
        wanted = "`shiplap init` writes a first one; or name another (--settings, or `npx aws-cdk -c settings=PATH`)"
        raise InvalidInput(str(path), f"does not exist; {wanted}")
    found = read_documents(path) if path.is_dir() else _written_in(path)
    if len(found) != 1:
        remedy = "" if found else ": it is empty, write `region` and `clusters`"
        raise InvalidInput(str(path), f"expected one document, found {len(found)}{remedy}")
    return found[0]


def _written_in(file: Path) -> tuple[Document, ...]:
    """The documents of a file. Raises InvalidInput; other tools than Helm fill in braces here."""
    text = text_of(file)
    try:
        return read_text(str(file), text)
    except InvalidInput as error:
        if TEMPLATE_SIGN not in text:
            raise
        reason = f"is a template, not YAML: render it first, or quote what has braces ({error.reason})"
        raise InvalidInput(str(file), reason, line=error.line) from error


def _placed(where: Where, reason: str) -> str:
    """The reason against a field; where a field is Karpenter's, with the kind that has it."""
    kinds = [kind for kind in (NodePool, EC2NodeClass) if reason == UNKNOWN and where[-1] in _fields_of(kind)]
    return f"{reason}; it belongs to the manifests, it is one of kind {kinds[0].__name__}" if kinds else reason


@cache
def _fields_of(kind: type) -> frozenset[str]:
    """The names of all fields of a manifest, at any depth."""
    parts = msgspec.json.schema(kind)["$defs"].values()
    return frozenset(name for part in parts for name in part.get("properties", ()))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # for example a name that is longer than file systems take
        return False


def _readable(data: Mapping[str, Any], refused: set[Where]) -> InstallDocument | None:
    """The install of what can be read beside refused fields, which it adds to; None where nothing can.

    Names that are missing are empty. A part that lacks what it requires is left out with the list that it stands in.
    """
    while True:
        kept = _without(data, refused, ())
        clusters = [{"name": "", "manifests": "", **each} for each in kept.get("clusters", ())]
        install, problems = decode({"region": "", **kept, "clusters": clusters}, written_install())
        lacking = {where[:-1] for where, reason in problems if reason == MISSING} - refused
        if install is not None or not lacking:
            return install
        refused |= lacking


def _without(value: Any, refused: Collection[Where], here: Where) -> Any:
    """A value without what stands at refused places; lists keep their length or go as a whole, clusters are emptied."""
    if isinstance(value, dict):
        inner = {
            key: _without(item, refused, (*here, key)) for key, item in value.items() if (*here, key) not in refused
        }
        return {key: item for key, item in inner.items() if item is not None}
    if isinstance(value, list):
        gone = [(*here, place) in refused for place in range(len(value))]
        if any(gone) and here != ("clusters",):
            return None
        return [{} if gone[place] else _without(item, refused, (*here, place)) for place, item in enumerate(value)]
    return value


def _of_rules(install: InstallDocument, refused: Collection[Where]) -> Iterator[Problem]:
    """What rules say. Networks are compared with each other: one that cannot be read says nothing of the others."""
    unread = any(where[:1] == ("clusters",) and where[2:3] == ("vpc",) for where in refused)
    for where, reason in install_problems(install):
        if not (unread and where[2:] == ("vpc",)):
            yield where, reason


def _follows(where: Where, refused: Collection[Where]) -> bool:
    """True if a problem is of something that is refused already, or of what was left without it."""
    return any(where[: len(other)] == other or other[: len(where)] == where for other in refused)


class _ManifestFolders:
    """Manifests by their path as shiplap.yaml writes it; each is read once."""

    def __init__(self, folder: Path) -> None:
        """Args: folder: that of shiplap.yaml."""
        self._folder = folder
        self._read: dict[str, FoundManifests] = {}

    def path(self, written: str) -> Path:
        return self._folder / written

    def read(self, written: str) -> FoundManifests:
        if written not in self._read:
            found = find_documents([self.path(written)])
            self._read[written] = FoundManifests(found.ours, inspect_documents(found, FoundDocuments(())))
        return self._read[written]

    @property
    def all(self) -> tuple[FoundManifests, ...]:
        return tuple(self._read.values())


def _problems_with_manifests(
    install: InstallDocument, cluster: ClusterDocument, folders: _ManifestFolders, refused: Collection[Where]
) -> tuple[list[Problem], list[InvalidInput]]:
    """What is wrong between a cluster and its manifests: with fields of the cluster, and in the manifests.

    `refused` are fields of the cluster that cannot be read.
    """
    where: Where = ("manifests",)
    if not cluster.manifests or _follows(where, refused):
        return [], []
    path = folders.path(cluster.manifests)
    if cluster.reads_cluster:
        reason = f"means the API server, and {path} exists: write ./{LIVE} for it, or move it away"
        return [(where, reason)] if _is_there(path) else [], []
    if not _is_there(path):
        hints = (hint for sign, hint in _NO_PATH.items() if sign in cluster.manifests)
        live = f"does not exist; write {LIVE} for the manifests in the cluster"
        told = live if cluster.manifests.lower() == LIVE else next(hints, MISSING_MANIFESTS)
        return [(where, f"{path} {told}")], []
    found = folders.read(cluster.manifests)
    misfits = list(_misfits(cluster, found.report.manifests)) if found.has_all_node_pools else []
    rules = [*found.report.problems, *_unwelcome_annotations(install, found.documents)]
    if ("name",) not in refused:
        rules += _roles_that_iam_cannot_have(cluster.name, found)
    if exists(install.region):
        rules += _other_partitions(install.region, found)
    if _access(cluster) == "entry":
        rules += _roles_of_two_systems(found)
    if not (("nodeRoles",) in refused or _named_roles(found)):
        rules += _profiles_of_unknown_roles(cluster, found)
    return [each for each in misfits if not _follows(each[0], refused)], rules


def _served(document: ClusterDocument, install: InstallDocument, folders: _ManifestFolders) -> ServedCluster:
    """A cluster that nothing is wrong with."""
    shared = set(ClusterSettings.__struct_fields__) & set(ClusterDocument.__struct_fields__)
    values: dict[str, Any] = {field: getattr(document, field) for field in shared}
    network = document.vpc.name if document.vpc else ""
    values |= {"region": install.region, "install": install.name, "network": network}
    found = (
        part.settings_of(getattr(document, name, None), getattr(install, name, None)) for name, part in documents()
    )
    values["policies"] = chosen(*(item for item in found if item is not None))
    if document.reads_cluster:
        values |= {"live_manifests": True, "allowed": document.allowed, "manifests": Manifests()}
    else:
        values["manifests"] = folders.read(document.manifests).report.manifests
    written = msgspec.structs.replace(document, access=_access(document))
    return ServedCluster(written, ClusterSettings(**values))


def _access(cluster: ClusterDocument) -> str:
    return cluster.access or ("none" if cluster.endpoint else "entry")


def _misfits(cluster: ClusterDocument, manifests: Manifests) -> Iterator[Problem]:
    """What optional features name and the manifests do not have."""
    for name, part in of_clusters():
        for field, reason in part.misfits(getattr(cluster, name), manifests):
            yield (key_of(name), *field), reason


def _unwelcome_annotations(install: InstallDocument, found: Collection[Document]) -> Iterator[InvalidInput]:
    """NodePools with annotations that an optional feature does not bear."""
    for name, part in of_installs():
        for annotation, reason in part.unwelcome(getattr(install, name)).items():
            yield from _at_node_pools_with(annotation, found, reason)


def _warnings(install: InstallDocument, folders: _ManifestFolders) -> Iterator[InvalidInput]:
    """What is doubtful about manifests in files beside the settings of their cluster."""
    for cluster in install.clusters:
        if not cluster.reads_cluster:
            found = folders.read(cluster.manifests)
            yield from _idle_annotations(install, cluster, found.documents)
            yield from _profiles_of_unknown_roles(cluster, found)
            yield from _foreign_zones(install.region, found)


def _idle_annotations(
    install: InstallDocument, cluster: ClusterDocument, found: Collection[Document]
) -> Iterator[InvalidInput]:
    """NodePools with annotations of optional features that are off for their cluster."""
    for name, part in of_clusters():
        if part.annotations and part.settings_of(getattr(cluster, name), getattr(install, name, None)) is None:
            reason = f"has no effect: `{key_of(name)}` of cluster {cluster.name!r} is off"
            for annotation in part.annotations:
                yield from _at_node_pools_with(annotation, found, reason)


def _foreign_zones(region: str, found: FoundManifests) -> Iterator[InvalidInput]:
    """NodePools that want zones of another Region, or a Region: names of zones begin with that of theirs."""
    for document, pool in found.report.sound:
        requirements = pool.spec.template.spec.requirements if isinstance(pool, NodePool) else ()
        for place, wanted in enumerate(requirements):
            if NORMALIZED.get(wanted.key, wanted.key) != ZONE or wanted.operator != "In":
                continue
            where: Where = ("spec", "template", "spec", "requirements", place, "values")
            if foreign := [zone for zone in wanted.values if not zone.startswith(region)]:
                yield _in_manifest(document, where, f"{', '.join(foreign)} is in another Region than {region}")
            if region in wanted.values:
                yield _in_manifest(document, where, f"{region} is a Region, its zones end with a letter: {region}a")


def _at_node_pools_with(annotation: str, found: Iterable[Document], reason: str) -> Iterator[InvalidInput]:
    for document in found:
        metadata = document.data.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if document.data.get("kind") == "NodePool" and annotation in (annotations or ()):
            yield _in_manifest(document, ("metadata", "annotations", annotation), reason)


def _roles_that_iam_cannot_have(cluster: str, found: FoundManifests) -> Iterator[InvalidInput]:
    """Roles under no name of IAM's; the one that the stack makes may be asked for by a longer name."""
    for document, item in found.node_classes():
        role = item.spec.role
        if role and role != own_node_role(cluster) and not is_role_name(role):
            yield _in_manifest(document, ("spec", "role"), not_a_role(role))


def _other_partitions(region: str, found: FoundManifests) -> Iterator[InvalidInput]:
    """Keys and parameters that EC2NodeClasses name by ARNs of another partition."""
    for document, item in found.node_classes():
        for where, name in _named_in(item):
            if reason := other_partition(name, region):
                yield _in_manifest(document, where, reason)


def _named_in(node_class: EC2NodeClass) -> Iterator[tuple[Where, str]]:
    """Yield the names in an EC2NodeClass that may be ARNs, each with its field."""
    for index, term in enumerate(node_class.spec.ami_selector_terms):
        yield ("spec", "amiSelectorTerms", index, "ssmParameter"), term.ssm_parameter
    for index, device in enumerate(node_class.spec.block_device_mappings):
        if device.ebs is not None:
            yield ("spec", "blockDeviceMappings", index, "ebs", "kmsKeyID"), device.ebs.kms_key_id or ""


def _roles_of_two_systems(manifests: FoundManifests) -> Iterator[InvalidInput]:
    """Each role that Windows and Linux nodes would share: it has one access entry. Only sound ones tell theirs."""
    found: dict[str, dict[bool, tuple[Document, EC2NodeClass]]] = {}
    for document, node_class in manifests.report.sound:
        if isinstance(node_class, EC2NodeClass) and node_class.spec.role:
            found.setdefault(node_class.spec.role, {}).setdefault(_is_windows(node_class), (document, node_class))
    where: Where = ("spec", "role")
    for role, by_system in found.items():
        if len(by_system) == 2:
            (linux, of_linux), (windows, _) = by_system[False], by_system[True]
            other = f"EC2NodeClass {of_linux.metadata.name!r} ({linux.source}:{linux.line_of(where)})"
            reason = (
                f"{role!r} is for Windows here and for Linux in {other}; an access entry is of one type: use two roles"
            )
            yield _in_manifest(windows, where, reason)


def _profiles_of_unknown_roles(cluster: ClusterDocument, found: FoundManifests) -> Iterator[InvalidInput]:
    """Instance profiles although no role is listed: permissions name roles, and manifests do not say a profile's."""
    where: Where = ("spec", "instanceProfile")
    roles = ", ".join(sorted(_named_roles(found)))
    unless = f" unless it is {roles}" if roles else ""
    for document, item in found.node_classes():
        if item.spec.instance_profile and not cluster.node_roles:
            reason = (
                f"no function may pass the role of {item.spec.instance_profile!r} to EC2{unless}: list the role in"
                f" `nodeRoles` of cluster {cluster.name!r}"
            )
            yield _in_manifest(document, where, reason)


def _named_roles(found: FoundManifests) -> frozenset[str]:
    return frozenset(item.spec.role for _, item in found.node_classes() if item.spec.role)


def _is_windows(node_class: EC2NodeClass) -> bool:
    return family_of(node_class).os == "windows"


def _refusal(source: Document, where: Where, reason: str) -> InvalidInput:
    return InvalidInput(source.source, reason, field=field_name(where), line=source.line_of(where))


def _in_manifest(document: Document, where: Where, reason: str) -> InvalidInput:
    line = document.line_of(where)
    return InvalidInput(document.source, reason, document=document.name, field=field_name(where), line=line)
