"""Makes the fix for each finding of `shiplap doctor`.

Every public function makes one fix. A fix with commands is complete: the commands are run as they stand, in their
order, and the finding is gone. A fix without commands is for a person, who has to decide, to edit or to ask.

Some things that the stack has made cannot be brought back by `cdk deploy`: an unchanged template is no change. With
`--revert-drift` CloudFormation compares the template with what is there, but neither event source mappings nor queue
policies, and the CDK leaves nested stacks out. So the commands here are those of each service. What they make has the
name that the stack knows, or none, and belongs to the stack again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import msgspec

from shiplap_cdk.stack_values import AUDIT_PATTERN, MOST_DELIVERIES, WITHOUT_MAPPING, log_group_of

GROUP = "shiplap"
"""The Kubernetes group of the functions, which docs/rbac.yaml binds."""


class Fix(msgspec.Struct, frozen=True):
    """`says` is one line for people and contains the `commands`, if there are any."""

    says: str
    commands: tuple[str, ...] = ()


def by_hand(says: str) -> Fix:
    """A fix that a person carries out; `says` tells what and where."""
    return Fix(says)


def _run(*commands: str, first: str = "") -> Fix:
    return Fix(first + "; then ".join(commands), commands)


def continue_rollback(stack: str) -> Fix:
    """Go on with the undoing of a deployment. CloudFormation takes no other change of the stack before."""
    events = f"`aws cloudformation describe-stack-events --stack-name {stack}` says why"
    return _run(
        f"aws cloudformation continue-update-rollback --stack-name {stack}", first=f"{events}; once it is corrected, "
    )


def update_function(function: str) -> Fix:
    """Lambda updates a function again when it is asked for a change of nothing."""
    return _run(
        f"aws lambda update-function-configuration --function-name {function}", first="correct what it names; then "
    )


def give_concurrency_back(function: str) -> Fix:
    """Let a function that is switched off run again."""
    return _run(f"aws lambda delete-function-concurrency --function-name {function}")


def move_forward(release: int) -> Fix:
    """Back to the newest release, which `shiplap install rollback` names by the version of function `schedule`."""
    return _run(f"shiplap install rollback {release}", first="intended after a roll back; else ")


def make_mapping_again(function: str) -> Fix:
    """Take the mapping out of the stack, which knows only the deleted one, and make it again."""
    return _run(f"npx aws-cdk deploy -c {WITHOUT_MAPPING}={function}", "npx aws-cdk deploy")


def enable_mapping(uuid: str) -> Fix:
    """Have Lambda poll the queue again."""
    return _run(f"aws lambda update-event-source-mapping --uuid {uuid} --enabled")


def let_rules_send(url: str, queue: str, rules: Sequence[str]) -> Fix:
    """The policy that the stack gives a queue: its rules may send, and nobody without TLS. `queue` is an ARN."""
    sending = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"],
        "Resource": queue,
        "Condition": {"ArnEquals": {"aws:SourceArn": sorted(rules)}},
    }
    without_tls = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "sqs:*",
        "Resource": queue,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = {"Version": "2012-10-17", "Statement": [sending, without_tls]}
    return _set_queue_attribute(url, "Policy", policy)


def set_dead_letters(url: str, dead_letters: str) -> Fix:
    """`dead_letters` is the ARN of the queue for what could not be handled."""
    redrive = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": MOST_DELIVERIES}
    return _set_queue_attribute(url, "RedrivePolicy", redrive)


def _set_queue_attribute(url: str, name: str, value: object) -> Fix:
    attributes = shlex.quote(json.dumps({name: json.dumps(value)}))
    return _run(f"aws sqs set-queue-attributes --queue-url {url} --attributes {attributes}")


def put_dead_letters_back(stack: str) -> Fix:
    """Put messages back into their queues; malformed ones stay."""
    return _run(
        f"shiplap status --stack {stack} --redrive",
        first="`shiplap status` says why (docs/how-to/operations.md#dead-letters); once the cause is gone, ",
    )


def ask_for_quota(service: str, code: str, wanted: float) -> Fix:
    """Ask AWS, which decides."""
    asks = f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code}"
    return Fix(f"ask AWS for more, in the console under Service Quotas or by `{asks} --desired-value {wanted:g}`")


def refresh_catalogue(function: str) -> Fix:
    """Read instance types and prices anew; the answer says what failed."""
    payload = "--payload '{}' --cli-binary-format raw-in-base64-out /dev/stdout"
    return _run(f"aws lambda invoke --function-name {function} --qualifier live {payload}")


def know_access_entries(cluster: str) -> Fix:
    """Let a cluster know access entries beside its ConfigMap. This cannot be undone."""
    return _run(f"aws eks update-cluster-config --name {cluster} --access-config authenticationMode=API_AND_CONFIG_MAP")


def let_function_enter(cluster: str, role: str) -> Fix:
    """The access entry of a function as the stack makes it."""
    create = f"aws eks create-access-entry --cluster-name {cluster} --principal-arn {role} --kubernetes-groups {GROUP}"
    return _run(create, first="with `access: none` map the role to the group yourself; else ")


def add_function_to_group(cluster: str, role: str, groups: Sequence[str]) -> Fix:
    """`groups` are those that the entry has already, and keeps."""
    wanted = shlex.join([*groups, GROUP])
    return _run(
        f"aws eks update-access-entry --cluster-name {cluster} --principal-arn {role} --kubernetes-groups {wanted}"
    )


def _create_node_entry(cluster: str, role: str, kind: str) -> str:
    return f"aws eks create-access-entry --cluster-name {cluster} --principal-arn {role} --type {kind}"


def let_nodes_enter(cluster: str, role: str, kind: str) -> Fix:
    """The access entry of a role of nodes."""
    return _run(_create_node_entry(cluster, role, kind))


def replace_node_entry(cluster: str, role: str, kind: str) -> Fix:
    """The type of an access entry cannot be changed."""
    delete = f"aws eks delete-access-entry --cluster-name {cluster} --principal-arn {role}"
    return _run(delete, _create_node_entry(cluster, role, kind))


def log_audit(cluster: str) -> Fix:
    """Have the control plane write its audit log to CloudWatch, at CloudWatch's price."""
    logging = shlex.quote(json.dumps({"clusterLogging": [{"types": ["audit"], "enabled": True}]}))
    return _run(f"aws eks update-cluster-config --name {cluster} --logging {logging}")


def subscribe_audit_log(cluster: str, install: str, function: str) -> Fix:
    """The subscription as the stack makes it. `function` is the ARN of the version in service."""
    return _run(
        f"aws logs put-subscription-filter --log-group-name {log_group_of(cluster)} --filter-name {install} "
        f"--filter-pattern {shlex.quote(AUDIT_PATTERN)} --destination-arn {function}"
    )


def grant_rights(file: str) -> Fix:
    """Grant what an RBAC manifest of this version lists."""
    return _run(f"kubectl apply -f {file}", first="in this cluster: ")


def bootstrap(qualifier: str = "") -> Fix:
    """Make what the CDK needs once in each account and Region, under its own qualifier or another one."""
    return _run(f"npx aws-cdk bootstrap --qualifier {qualifier}" if qualifier else "npx aws-cdk bootstrap")


def make_service_linked_role(service: str) -> Fix:
    """The role of an AWS service, which it makes itself only for those who may let it."""
    return _run(f"aws iam create-service-linked-role --aws-service-name {service}")


def admit_functions(group: str, port: int, source: str) -> Fix:
    """Admit the functions' security group."""
    return _run(
        f"aws ec2 authorize-security-group-ingress --group-id {group} --protocol tcp --port {port} "
        f"--source-group {source}"
    )
