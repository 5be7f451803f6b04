"""The way over, one step at a time, each with the commands that take it and those that undo it.

The old autoscaler runs until the last step. Pods are never moved by force: nodes are drained within their
PodDisruptionBudgets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap_cli.commands.migrate.migration_findings import MIGRATION_TAINT, FormerKind, FormerPool, MigrationStep

_DRAIN = "--ignore-daemonsets --delete-emptydir-data"
_TRY = (
    "kubectl get nodes,pods,daemonsets,pv,pvc,storageclasses,csinodes,csidrivers,pdb,namespaces -A -o json"
    " | shiplap plan --cluster-state - --manifests {folder}"
)


def steps_of(
    folder: str, cluster: str, formers: Sequence[FormerPool], *, tainted: bool, given: str = "FILES"
) -> tuple[MigrationStep, ...]:
    """All steps in order.

    Args:
        folder: where the manifests were written.
        cluster: its name, or a placeholder.
        formers: what is left, and what takes its place; of one kind of autoscaler.
        tainted: whether the new pools carry the migration's taint.
        given: the arguments of `migrate convert` that say what is converted.
    """
    karpenter = any(former.origin is FormerKind.NODE_POOL for former in formers)
    steps = [*_first_steps(folder, given, tainted=tainted)]
    if formers:
        steps.append(_move_one_workload(formers[0].becomes, tainted=tainted))
    steps.append(_stop_karpenter(formers) if karpenter else _stop_autoscaler(formers))
    if tainted:
        steps.append(_claim_every_pod(folder))
    steps += (_empty(former, cluster) for former in formers)
    return (*steps, _remove("karpenter" if karpenter else "cluster-autoscaler", 2 if karpenter else 1))


def _first_steps(folder: str, given: str, *, tainted: bool) -> Iterator[MigrationStep]:
    yield MigrationStep(
        "Check the manifests",
        "What is not mapped stands in the report; mend it before going on.",
        (f"shiplap validate {folder}",),
        (f"rm -r {folder}",),
    )
    tried = f"{folder}-untainted" if tainted else folder
    convert = (f"shiplap migrate convert {given} --no-taint --to {tried}",) if tainted else ()
    without = " The taint of the migration keeps nearly every pod off, so they are tried without it." if tainted else ""
    yield MigrationStep(
        "Try them on the cluster as it is",
        f"It says what would be launched, for which pods, at what price; the cluster is only read.{without}",
        (*convert, _TRY.format(folder=tried)),
        (f"rm -r {tried}",) if tainted else (),
    )
    apart = " Only pods that tolerate the taint of the migration are claimed." if tainted else ""
    yield MigrationStep(
        "Deploy",
        "Write shiplap.yaml first, as it stands above. Beside it `shiplap init` writes cdk.json and docs/rbac.yaml;"
        " bootstrap once per account and Region; `doctor` lists what the account and the cluster lack."
        f"{apart} Nothing is launched yet.",
        (
            "shiplap init",
            "npx aws-cdk bootstrap",
            "shiplap doctor --before-deploy",
            "npx aws-cdk deploy",
            "kubectl apply -f docs/rbac.yaml",
            "shiplap status",
        ),
        ("kubectl delete -f docs/rbac.yaml", "npx aws-cdk destroy"),
    )


def _move_one_workload(pool: str, *, tainted: bool) -> MigrationStep:
    template = "/spec/template/spec"
    toleration = {"key": MIGRATION_TAINT.key, "operator": "Exists"}
    patch = [{"op": "add", "path": f"{template}/tolerations", "value": [toleration]}] if tainted else []
    selector = {"op": "add", "path": f"{template}/nodeSelector", "value": {labels.NODE_POOL: label_value_of(pool)}}
    return MigrationStep(
        "Move one workload",
        "The patch replaces tolerations and nodeSelector: merge by hand where there are some. Watch it for a day.",
        (
            f"kubectl patch deployment NAME --type=json -p '{json.dumps([*patch, selector])}'",
            "kubectl rollout status deployment NAME",
        ),
        ("kubectl rollout undo deployment NAME",),
    )


def _stop_karpenter(formers: Sequence[FormerPool]) -> MigrationStep:
    return MigrationStep(
        "Let Karpenter launch nothing more",
        "A limit of zero keeps its pools from growing; their nodes stay.",
        tuple(_limit(former.name, "0") for former in formers),
        tuple(_limit(former.name, former.cpu_limit or None) for former in formers),
    )


def _limit(pool: str, cpu: str | None) -> str:
    return f"kubectl patch nodepool {pool} --type=merge -p '{json.dumps({'spec': {'limits': {'cpu': cpu}}})}'"


def _stop_autoscaler(formers: Sequence[FormerPool]) -> MigrationStep:
    groups = f"{len(formers)} groups keep their sizes" if len(formers) > 1 else "group keeps its size"
    return MigrationStep(
        "Stop Cluster Autoscaler",
        f"Its {groups}. A pod that it has just scaled up for is held back until that node is there or has failed.",
        ("kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0",),
        ("kubectl -n kube-system scale deployment cluster-autoscaler --replicas=1",),
    )


def _claim_every_pod(folder: str) -> MigrationStep:
    return MigrationStep(
        "Hand all pods over",
        f"Take the taint {MIGRATION_TAINT.key} out of the NodePools in {folder}, and claimRules out of shiplap.yaml."
        " Every node launched before has drifted then: it is replaced within the disruption budgets of its NodePool.",
        ("git commit -am 'Shiplap claims every pod'", "npx aws-cdk deploy"),
        ("git revert HEAD", "npx aws-cdk deploy"),
    )


def _empty(former: FormerPool, cluster: str) -> MigrationStep:
    name = former.name
    match former.origin:
        case FormerKind.NODE_POOL:
            return MigrationStep(
                f"Empty NodePool {name}",
                "Node by node, within the PodDisruptionBudgets; Karpenter ends what is empty.",
                (f"kubectl drain -l {labels.NODE_POOL}={name} {_DRAIN}",),
                (f"kubectl uncordon -l {labels.NODE_POOL}={name}",),
            )
        case FormerKind.NODE_GROUP:
            selector = f"eks.amazonaws.com/nodegroup={name}"
            resize = (
                f"aws eks update-nodegroup-config --cluster-name {cluster} --nodegroup-name {name} --scaling-config "
            )
            return MigrationStep(
                f"Empty node group {name}",
                "Node by node, within the PodDisruptionBudgets.",
                (f"kubectl drain -l {selector} {_DRAIN}", f"{resize}minSize=0,desiredSize=0"),
                (f"{resize}minSize={former.least},desiredSize={former.desired}", f"kubectl uncordon -l {selector}"),
            )
        case FormerKind.SCALING_GROUP:
            nodes = (
                f"aws ec2 describe-instances --filters Name=tag:aws:autoscaling:groupName,Values={name}"
                " --query 'Reservations[].Instances[].PrivateDnsName' --output text | xargs -n1 kubectl "
            )
            resize = f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {name} "
            return MigrationStep(
                f"Empty Auto Scaling group {name}",
                "Node by node, within the PodDisruptionBudgets.",
                (f"{nodes}drain {_DRAIN}", f"{resize}--min-size 0 --desired-capacity 0"),
                (f"{resize}--min-size {former.least} --desired-capacity {former.desired}", f"{nodes}uncordon"),
            )


def _remove(name: str, replicas: int) -> MigrationStep:
    return MigrationStep(
        f"Remove {name}, a week later",
        "Look at the nodes first: none may be left of the old pools or groups.",
        (
            f"kubectl get nodes -L {labels.NODE_POOL},eks.amazonaws.com/nodegroup",
            f"kubectl -n kube-system scale deployment {name} --replicas=0",
        ),
        (f"kubectl -n kube-system scale deployment {name} --replicas={replicas}",),
    )
