"""Adds what MiniStack's CloudFormation lacks: access entries of EKS, and what stacks retain in IAM.

MiniStack's own EKS keeps the entries. Of a nested stack that its parent deletes, MiniStack deletes every resource. The
name that it generates for a logical id is always the same, so that a role once retained would be made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Any

from ministack.services import cloudformation, eks, iam
from ministack.services.cloudformation import provisioners


def install() -> None:
    """Have stacks make and delete access entries, and keep what their nested stacks retain."""
    handlers = provisioners._RESOURCE_HANDLERS
    handlers["AWS::EKS::AccessEntry"] = {"create": _create_entry, "delete": _delete_entry}
    nested = handlers["AWS::CloudFormation::Stack"]
    _name_anew("AWS::IAM::Role", "RoleName", 64, iam._roles)
    _name_anew("AWS::IAM::InstanceProfile", "InstanceProfileName", 128, iam._instance_profiles)
    handlers["AWS::CloudFormation::Stack"] = nested | {"delete": _keeping_retained(nested["delete"])}


def _name_anew(kind: str, name: str, longest: int, existing: Container[str]) -> None:
    """Have each creation of a type generate a name that is not taken, and updates remember it."""
    generate = provisioners._physical_name
    times: Counter[tuple[str, str]] = Counter()

    def generated(stack: str, logical_id: str, **options: Any) -> str:
        number = times[stack, logical_id]
        made: str = generate(stack, f"{logical_id}{number}" if number else logical_id, **options)
        return made

    provisioners._physical_name = generated
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    create = handlers["create"]

    def created(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        if name not in properties and generated(stack, logical_id, max_len=longest) in existing:
            times[stack, logical_id] += 1
        return create(logical_id, properties, stack)

    provisioners._RESOURCE_HANDLERS[kind] = handlers | {"create": created}


def _keeping_retained(delete: Callable[..., None]) -> Callable[..., None]:
    """The deletion of a nested stack by its id, of all but what it retains.

    `RetainExceptOnCreate` does not hold while the parent takes back the operation that has made the nested stack.
    """

    def deleted(physical_id: str, properties: Mapping[str, Any]) -> None:
        stacks = cloudformation._stacks
        stack = stacks.get(provisioners._nested_stack_lookup_name(physical_id))
        if stack is not None:
            is_taken_back = any("ROLLBACK_IN_PROGRESS" in parent["StackStatus"] for parent in stacks.values())
            kept = ("Retain",) if is_taken_back else ("Retain", "RetainExceptOnCreate")
            declared = stack["_template"]["Resources"]
            stack["_resources"] = {
                name: resource
                for name, resource in stack["_resources"].items()
                if declared.get(name, {}).get("DeletionPolicy") not in kept
            }
        delete(physical_id, properties)

    return deleted


def _create_entry(_logical_id: str, properties: Mapping[str, Any], _stack: str) -> tuple[str, dict[str, str]]:
    cluster, principal = properties["ClusterName"], properties["PrincipalArn"]
    body = {
        "principalArn": principal,
        "type": properties.get("Type", "STANDARD"),
        "kubernetesGroups": properties.get("KubernetesGroups", []),
        "tags": {tag["Key"]: tag["Value"] for tag in properties.get("Tags", ())},
    }
    status, _, answer = eks._create_access_entry(cluster, body)
    if status >= 400:
        raise ValueError(f"AWS::EKS::AccessEntry create failed: {answer!r}")
    return f"{principal}|{cluster}", {"AccessEntryArn": eks._access_entry_arn(cluster, principal)}


def _delete_entry(_physical_id: str, properties: Mapping[str, Any]) -> None:
    eks._delete_access_entry(properties["ClusterName"], properties["PrincipalArn"])
