"""The whole migration: every source found among documents, and what all of them come to."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import check_documents
from shiplap_cli.commands.migrate import autoscaler, aws_groups, karpenter
from shiplap_cli.commands.migrate.autoscaler import AutoscalerSettings
from shiplap_cli.commands.migrate.group_pools import manifests_of
from shiplap_cli.commands.migrate.groups import SourceGroup, left_out_because, source_groups
from shiplap_cli.commands.migrate.migration_findings import (
    MIGRATION_TAINT,
    KubernetesObject,
    MatchQuality,
    Migration,
    MigrationDraft,
    MigrationFinding,
    Naming,
)
from shiplap_cli.commands.migrate.steps import steps_of

UNNAMED = "CLUSTER"
"""Stands for the cluster's name in commands where no source says it."""


def migrate(
    documents: Sequence[Document],
    naming: Naming,
    *,
    cluster: str = "",
    folder: str = "manifests",
    given: str = "FILES",
) -> Migration:
    """Manifests, report and steps for what documents describe.

    Args:
        documents: Karpenter's objects; or AWS's answers about groups, with Cluster Autoscaler's Deployment and the
            ConfigMap of its expander.
        naming: how new pools are told from old ones.
        cluster: its name, where the documents do not say it.
        folder: where the manifests will be written, for the steps.
        given: the command's arguments that say what is converted, for the steps, too.

    Raises:
        InvalidInput: there is nothing to migrate, both autoscalers are described at once, or an answer is malformed.
    """
    theirs = [document for document in documents if karpenter.is_karpenter(document)]
    answers = [document for document in documents if aws_groups.is_aws_answer(document)]
    settings = [document for document in documents if autoscaler.is_autoscaler(document)]
    if theirs and answers:
        raise InvalidInput(
            theirs[0].source, "Karpenter's objects and groups of Cluster Autoscaler are moved one after the other"
        )
    if theirs:
        draft = karpenter.migrate(theirs, naming)
    elif answers:
        draft = _from_autoscaler(answers, settings, naming, cluster)
    else:
        raise InvalidInput(
            documents[0].source if documents else "input",
            "holds neither NodePools and EC2NodeClasses of Karpenter nor what AWS answers about Auto Scaling groups or "
            "node groups (aws autoscaling describe-auto-scaling-groups, aws eks describe-nodegroup)",
        )
    name = cluster or draft.cluster or UNNAMED
    return Migration(
        origin="Cluster Autoscaler" if answers else "Karpenter",
        cluster=name,
        formers=draft.formers,
        manifests=draft.manifests,
        claim_rules=(ClaimRule(tolerates=MIGRATION_TAINT.key),) if naming.taint else (),
        join_timeout_s=draft.join_timeout_s,
        findings=_with_refusals(draft.findings, _manifest_problems(draft.manifests)),
        steps=steps_of(folder, name, draft.formers, tainted=naming.taint, given=given),
    )


def _from_autoscaler(
    answers: Sequence[Document], settings: Sequence[Document], naming: Naming, cluster: str
) -> MigrationDraft:
    scaler, said = autoscaler.read(settings)
    every = source_groups(aws_groups.read(answers))
    wanted = cluster or scaler.cluster or _only_cluster(every, answers[0].source, scaler)
    left = {group.name: reason for group in every if (reason := left_out_because(group, scaler, wanted))}
    if len(left) == len(every):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left.items())
        raise InvalidInput(answers[0].source, f"no group becomes a NodePool: {reasons or 'there is none'}")
    groups = [group for group in every if group.name not in left]
    manifests, formers, findings = manifests_of(groups, scaler, naming, wanted or UNNAMED)
    passed = (
        MigrationFinding(MatchQuality.NONE, group.source, "left out", "", left[group.name])
        for group in every
        if group.name in left
    )
    if not settings:
        note = (
            "was not given: its flags and the priorities of its expander are not in the report (kubectl get deployment"
        )
        note += " cluster-autoscaler -n kube-system -o yaml)"
        said = (MigrationFinding(MatchQuality.NONE, "cluster-autoscaler", "Deployment", "", note),)
    return MigrationDraft(manifests, (*said, *findings, *passed), formers, wanted, scaler.join_timeout_s)


def _only_cluster(groups: Sequence[SourceGroup], source: str, scaler: AutoscalerSettings) -> str:
    """Return the cluster of the groups, where neither option nor flag says it; empty where no group does.

    Raises:
        InvalidInput: they are of several clusters.
    """
    clusters = sorted({group.cluster for group in groups if not left_out_because(group, scaler, "")} - {""})
    if len(clusters) > 1:
        raise InvalidInput(source, f"has groups of clusters {', '.join(clusters)}: say which one by --cluster")
    return clusters[0] if clusters else ""


def _with_refusals(
    findings: Sequence[MigrationFinding], problems: Sequence[MigrationFinding]
) -> tuple[MigrationFinding, ...]:
    """The findings beside what Shiplap refuses: an object that it refuses does not map, however alike it is."""
    refused = {problem.source for problem in problems}
    corrected = [
        replace(item, match=MatchQuality.NONE, note="Shiplap refuses it as it is, for the reasons given below")
        if item.match is MatchQuality.EXACT and _object_of(item) in refused
        else item
        for item in findings
    ]
    return (*corrected, *problems)


def _object_of(finding: MigrationFinding) -> str:
    """The manifest that a finding about a whole object is about."""
    if finding.field not in _WHOLE_OBJECTS:
        return ""
    return finding.becomes if finding.field == "NodePool" else finding.source


_WHOLE_OBJECTS = ("NodePool", "EC2NodeClass", "NodeOverlay")


def _manifest_problems(manifests: Sequence[KubernetesObject]) -> tuple[MigrationFinding, ...]:
    """Return what Shiplap would refuse in the manifests as they are, so that the report shows it first."""
    documents = [
        Document("migration", number, 0, f"{body.get('kind')}/{body.get('metadata', {}).get('name')}", body)
        for number, body in enumerate(manifests)
    ]
    return tuple(
        MigrationFinding(
            MatchQuality.NONE, problem.document, problem.field, "", f"Shiplap refuses it: {problem.reason}"
        )
        for problem in check_documents(documents).problems
    )
