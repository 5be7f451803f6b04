"""The list of commands: the name of each, where its function is, and the line that `--help` shows of it.

A module of a command is imported only when the command is used, so that `shiplap validate` does not wait for numpy.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from shiplap_cli import policies
from shiplap_cli.command_entry import CommandEntry


def _of_policies(below: str) -> dict[str, CommandEntry]:
    """Return the commands that optional features add below another, which `shiplap_cli.policies.<name>_commands` lists.

    The files are listed, because the registry of features would have every command wait for the scheduler's modules.
    """
    names = sorted(found.name for found in iter_modules(policies.__path__) if found.name.endswith("_commands"))
    modules = (import_module(f"{policies.__name__}.{name}") for name in names)
    return {word: entry for module in modules for word, entry in getattr(module, below.upper(), {}).items()}


_CAPACITY = {
    "list": CommandEntry(
        "One line per AMI, instance type and kubelet settings.", "capacity.capacity:list_", answers="LearnedRows"
    ),
    "show": CommandEntry(
        "Everything that is known of an AMI's entries.", "capacity.capacity:show", answers="LearnedEntries"
    ),
    "import": CommandEntry(
        "Add what another install has learned.", "capacity.capacity:import_", answers="ImportedEntries RestoredEntries"
    ),
    "export": CommandEntry(
        "Print everything as JSON, for import.",
        "capacity.capacity:export",
        answers="shiplap_cli.inputs.learned.learned_file:LearnedFile "
        "shiplap_cli.inputs.learned.travelling_capacity:TravellingFile",
    ),
    "forget": CommandEntry("Remove what is known of an AMI.", "capacity.capacity:forget", answers="ForgottenEntries"),
}

_EXPLAIN = {
    "pod": CommandEntry(
        "Why a pod is where it is, or has no place.",
        "explain.explain:pod",
        answers="explain_answers:PodAnswer explain_answers:StoryOfPod history:History",
    ),
    "claim": CommandEntry(
        "Why a claim has its pool, types and price.",
        "explain.explain:claim",
        answers="explain_answers:ClaimAnswer explain_answers:StoryOfClaim history:History present_state:PresentState",
    ),
    "node": CommandEntry(
        "A node's cost and pods, and what keeps it.",
        "explain.explain:node",
        answers="explain_answers:NodeAnswer explain_answers:StoryOfNode history:History",
    ),
    "pool": CommandEntry(
        "A NodePool's nodes, launches and limits.",
        "explain.explain:pool",
        answers="explain_answers:PoolAnswer explain_answers:StoryOfPool history:History",
    ),
    "decision": CommandEntry(
        "Make a recorded decision again.",
        "explain.recorded_decision:decision",
        answers="ReplayDocument UnreadableDocument",
    ),
    "instance-types": CommandEntry(
        "What each instance type yields, and why.",
        "explain.instance_types:instance_types",
        answers="YieldsByType",
        asks_aws=False,
    ),
    **_of_policies("explain"),
}

_INSTALL = {
    "deploy": CommandEntry(
        "Deploy a fleet's installs in waves.",
        "install.deploy:deploy",
        answers="PlannedDeployments DoneDeployments",
        wheel_extra="cdk",
    ),
    "template": CommandEntry(
        "Write the stack as a CloudFormation template.",
        "install.template:template",
        answers="TemplateDocument",
        asks_aws=False,
        wheel_extra="cdk",
    ),
    "chart": CommandEntry(
        "Write the Helm chart of the permissions in clusters.",
        "install.chart:chart",
        answers="ChartDocument",
        asks_aws=False,
    ),
    "terraform": CommandEntry(
        "Write the stack as a Terraform module.",
        "install.terraform:terraform",
        answers="TerraformDocument",
        asks_aws=False,
        wheel_extra="cdk",
    ),
    "rollback": CommandEntry(
        "Move all functions to an earlier release.", "install.rollback:rollback", answers="RollbackDocument"
    ),
    "uninstall": CommandEntry(
        "End an install: launches, nodes, stack, data.", "install.uninstall:uninstall", answers="UninstallDocument"
    ),
}

_LAB = {
    "dev": CommandEntry(
        "The whole system on this machine, live.",
        "lab.dev:dev",
        answers="shiplap_lab.dev.dev_report:DevReport",
        asks_aws=False,
    ),
    "simulate": CommandEntry(
        "A scenario in virtual time, with faults.",
        "lab.simulate:simulate",
        answers="RunDocument CampaignDocument ManifestsDocument MutantsDocument",
        asks_aws=False,
    ),
}

_MIGRATE = {
    "convert": CommandEntry(
        "Convert what another autoscaler is told.", "migrate.convert:convert", answers="MigrationDocument"
    ),
    "handover": CommandEntry(
        "Hand nodes from Karpenter to Shiplap, or back.", "migrate.handover:handover", answers="HandoverDocument"
    ),
}

_STATUS = {
    "fleet": CommandEntry(
        "All clusters of all installs on one screen.", "status.fleet:fleet", answers="fleet_document:FleetDocument"
    ),
    **_of_policies("status"),
}

COMMANDS = {
    "capacity": CommandEntry("The learned capacity: list, show, import, export, forget.", inner=_CAPACITY),
    "disrupt": CommandEntry(
        "What would be consolidated, drifted or expired, and why not.",
        "disrupt.disrupt:disrupt",
        answers="shiplap_cli.commands.plan.plan_answers:DisruptAnswer",
    ),
    "doctor": CommandEntry(
        "Check a deployment, and say how to fix each problem.",
        "doctor.doctor:doctor",
        answers="check_results:DoctorDocument",
    ),
    "explain": CommandEntry("Why a pod, claim, node, pool, type or decision is as it is.", inner=_EXPLAIN),
    "init": CommandEntry(
        "Look at an EKS cluster and write first files that fit it.", "init.init:init", answers="InitDocument"
    ),
    "install": CommandEntry("Deploy, write as a template, roll back or end an install.", inner=_INSTALL),
    "lab": CommandEntry("Shiplap without AWS: live on this machine, or simulated.", inner=_LAB),
    "migrate": CommandEntry("From Karpenter or Cluster Autoscaler to Shiplap.", inner=_MIGRATE),
    "plan": CommandEntry(
        "What would be launched for a cluster with these manifests.",
        "plan.plan:plan",
        answers="plan_answers:PlanAnswer plan_answers:ArmAnswer plan_answers:DifferenceAnswer",
    ),
    "status": CommandEntry(
        "Health of an install; its fleet and spending; wake.",
        "status.status:status",
        _STATUS,
        answers="StatusAnswer RedriveAnswer",
    ),
    "top": CommandEntry(
        "A live view of a cluster: nodes, pods that wait, dollars.", "top.top:top", answers="TopDocument"
    ),
    "validate": CommandEntry(
        "Check manifests: file, line, field, reason.",
        "validate.validate:validate",
        answers="ValidationDocument",
        asks_aws=False,
    ),
}
"""The twelve commands, by name; the only list of them."""
