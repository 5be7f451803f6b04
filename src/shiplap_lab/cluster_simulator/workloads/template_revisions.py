"""The templates that a StatefulSet or DaemonSet has had, as ControllerRevisions: `kubectl rollout undo` reads them."""

from __future__ import annotations

from typing import Any

from shiplap.errors import ObjectConflict
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, owner_reference
from shiplap_lab.cluster_simulator.workloads.templated_pods import template_hash
from shiplap_lab.cluster_simulator.workloads.workload_labels import REVISION_HASH

_PLURAL = "controllerrevisions"


def revision_name(item: Object) -> str:
    """The name of the revision of an object's current template."""
    return f"{item['metadata']['name']}-{template_hash(item['spec']['template'])}"


def keep_history(client: ControllerClient, item: Object, in_use: set[str]) -> dict[str, Object]:
    """Store the current template as the newest revision; the templates by name, without those beyond the limit.

    Args:
        client: of the step.
        item: a StatefulSet or DaemonSet.
        in_use: revisions of pods, which stay.
    """
    name, namespace = revision_name(item), item["metadata"]["namespace"]
    known = sorted(client.owned(_PLURAL, item), key=lambda each: int(each.get("revision", 0)))
    newest = int(known[-1].get("revision", 0)) if known else 0
    current = next((each for each in known if each["metadata"]["name"] == name), None)
    if current is None:
        try:
            known.append(client.server.create(_PLURAL, _revision(item, name, newest + 1), namespace))
        except ObjectConflict:
            pass  # somebody else's has this name; the template is followed all the same
    elif current is not known[-1]:
        client.server.patch(_PLURAL, name, {"revision": newest + 1}, namespace)
    limit = int(item["spec"].get("revisionHistoryLimit", 10))
    spare = [each["metadata"]["name"] for each in known if each["metadata"]["name"] not in {name, *in_use}]
    for each in spare[: max(len(spare) - limit, 0)]:
        client.delete(_PLURAL, each, namespace)
    return {each["metadata"]["name"]: _template_of(each) for each in known} | {name: item["spec"]["template"]}


def _revision(item: Object, name: str, number: int) -> dict[str, Any]:
    template = item["spec"]["template"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {
        "metadata": {
            "name": name,
            "labels": {**labels, REVISION_HASH: name.rpartition("-")[2]},
            "ownerReferences": [owner_reference(item)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def _template_of(revision: Object) -> Object:
    template = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}
