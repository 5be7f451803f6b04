"""Values of the stack that commands need as well, in a module that does not load the CDK."""

from __future__ import annotations

MOST_DELIVERIES = 5
"""Deliveries of a message before it becomes a dead letter; throttled invocations count as deliveries too."""

AUDIT_PATTERN = (
    '{ ($.objectRef.resource = "pods") && ($.objectRef.subresource = "status") && ($.stage = "ResponseComplete") && '
    '($.user.username != "system:node:*") && ($.responseObject.spec.nodeName NOT EXISTS) }'
)
"""What CloudWatch passes on of an audit log: writes to the status of pods without a node, by anybody but the kubelets,
whose writes are nearly all. Records that lost their objects, being too large, pass too; those that were cut are no JSON
and do not."""

WITHOUT_MAPPING = "withoutEventSourceMapping"
"""Context of the CDK app: the name of a Lambda function whose event source mapping is left out of the template.

CloudFormation does not see that a mapping was deleted by hand, because it does not detect the drift of mappings. A
deployment without the mapping removes it from the stack, and the next one makes it again.
"""


def log_group_of(cluster: str) -> str:
    """The log group of an EKS cluster's control plane."""
    return f"/aws/eks/{cluster}/cluster"
