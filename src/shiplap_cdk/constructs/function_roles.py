"""Makes a role per function, with all that its statements say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from aws_cdk import Names, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from shiplap_cdk.constructs import permissions
from shiplap_cdk.constructs.acknowledged import acknowledge
from shiplap_cdk.constructs.spread import spread
from shiplap_cdk.install_document import in_group

# Functions that talk to the Kubernetes API.
CLUSTER_FUNCTIONS = ("schedule", "lifecycle", "disrupt", "watch")

_PERMISSIONS: dict[str, Callable[[permissions.PolicyTargets], permissions.Statements]] = {
    "schedule": permissions.schedule,
    "lifecycle": permissions.lifecycle,
    "interrupt": permissions.interrupt,
    "catalog": permissions.catalog,
    "disrupt": permissions.disrupt,
    "watch": permissions.watch,
    "audit": permissions.audit,
    "widget": permissions.widget,
}

MANAGED_POLICY_CHARACTERS = 6144
"""What IAM allows in a managed policy, not counting white space."""

_POLICY_FRAME = len('{"Version":"2012-10-17","Statement":[]}')
_QUOTES = len('"",')
_TOKEN = re.compile(r"\$\{Token\[[^]]*\]\}")
# As long as the longest of what ARNs refer to, the twelve digits of an account; Regions are written out.
_LONGEST_TOKEN = "x" * 16


class FunctionRoles(Construct):
    """`roles` by the names of the functions."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        targets: permissions.PolicyTargets,
        functions: Sequence[str],
        in_network: bool,
        tracing: bool,
        group: str = "",
    ) -> None:
        """`group` names the network group of the functions, which is part of their names in Lambda."""
        super().__init__(scope, id_)
        self._group = group
        self.roles = {name: self._role(name, targets, in_network=in_network, tracing=tracing) for name in functions}

    def _role(self, name: str, targets: permissions.PolicyTargets, *, in_network: bool, tracing: bool) -> iam.Role:
        role = iam.Role(
            self,
            name.capitalize(),
            description=f"Shiplap's function {name}",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        statements = _PERMISSIONS[name](targets)
        if name in CLUSTER_FUNCTIONS:
            statements += permissions.kubeconfigs(targets)
        if in_network:
            statements += permissions.inside_network(f"{targets.install}-{in_group(name, self._group)}")
        if tracing:
            statements += permissions.traced()
        for statement in statements:
            if isinstance(statement, iam.PolicyStatement):
                role.add_to_policy(statement)
        listed = [statement for statement in statements if isinstance(statement, permissions.ItemizedStatement)]
        for bucket, policy in policies(listed).items():
            iam.ManagedPolicy(
                role,
                f"Clusters{bucket}",
                description=f"What Shiplap's function {name} may do with clusters and what belongs to them",
                roles=[role],
                statements=policy,
            )
        acknowledge(
            role,
            "AwsSolutions-IAM5",
            "Instances, volumes, templates and recorded decisions get their ids when they are made: tags or a prefix "
            "bound them instead. Describe actions and the Pricing API know no resources.",
            *sorted({f"Resource::{self._readable(arn, targets)}" for arn in _wildcards(statements)}),
        )
        return role

    def _readable(self, arn: str, targets: permissions.PolicyTargets) -> str:
        """An ARN as cdk-nag writes it in the id of a finding: `<LogicalId.Attribute>` for each reference.

        In a nested stack a reference to the bucket, the only one among our patterns, is the name of a parameter.
        """
        resolved = Stack.of(self).resolve(arn)
        if isinstance(resolved, str):
            return resolved
        return "".join(
            part if isinstance(part, str) else f"<{self._referred(_reference(part), targets)}>"
            for part in resolved["Fn::Join"][1]
        )

    def _referred(self, reference: str, targets: permissions.PolicyTargets) -> str:
        bucket = targets.storage.bucket.node.default_child
        if bucket is None or reference.startswith("AWS::") or Stack.of(self).nested_stack_parent is None:
            return reference
        return f"referenceto{Names.node_unique_id(bucket.node)}Arn"


def policies(listed: Sequence[permissions.ItemizedStatement]) -> dict[str, list[iam.PolicyStatement]]:
    """Statements of managed policies that hold all that is listed, by the name of each policy's bucket.

    More statements than one policy holds are spread by their items, so that a cluster more or less changes one policy.
    """
    size = {index: _length(each.about([""])) for index, each in enumerate(listed)}
    about = {_plain(item): item for each in listed for item in each.items}
    named = [(each, {_plain(item) for item in each.items}) for each in listed]

    def fits(items: Sequence[str]) -> bool:
        total = _POLICY_FRAME
        for index, (_, of_statement) in enumerate(named):
            own = [len(item) + _QUOTES for item in items if item in of_statement]
            total += size[index] + sum(own) if own else 0
        return total <= MANAGED_POLICY_CHARACTERS

    return {
        bucket: [
            each.about([about[item] for item in items if item in of_statement])
            for each, of_statement in named
            if any(item in of_statement for item in items)
        ]
        for bucket, items in spread(list(about), fits).items()
    }


def _length(statement: iam.PolicyStatement) -> int:
    return len(_plain(json.dumps(statement.to_statement_json(), separators=(",", ":"))))


def _plain(text: str) -> str:
    """A text with a long word in the place of each token: the numbers of tokens change with each synth."""
    return _TOKEN.sub(_LONGEST_TOKEN, text)


def _wildcards(statements: permissions.Statements) -> list[str]:
    """Resources that are patterns, in what is fixed and in what is listed."""
    fixed = [each if isinstance(each, iam.PolicyStatement) else each.about(each.items) for each in statements]
    return [arn for statement in fixed for arn in statement.resources if arn.endswith("*")]


def _reference(part: dict[str, object]) -> str:
    """`{"Ref": "X"}` as X, `{"Fn::GetAtt": ["X", "Arn"]}` as X.Arn."""
    (target,) = part.values()
    return ".".join(map(str, target)) if isinstance(target, list) else str(target)
