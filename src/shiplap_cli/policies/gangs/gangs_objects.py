"""PodGroups in files and clusters: what they say of gangs, or where and why something is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.pod_groups import (
    KIND,
    PodGroupObject,
    group_of,
    pod_group_facts,
    pod_group_problems,
    unread_facts,
)
from shiplap_cli.inputs.object_validation import invalid_field, raise_first, typed_object
from shiplap_cli.inputs.pod_templates.admission import Admission, PriorityClass
from shiplap_cli.policy_views import FeatureObjects

PRIORITY_CLASS = "PriorityClass"


def checked_pod_groups(documents: Sequence[Document]) -> Iterator[tuple[Document, PodGroupObject | InvalidInput]]:
    """Yield the PodGroups among documents, each as it was read, or what is wrong with it."""
    first: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        if document.data.get("kind") != KIND or not group_of(document.data.get("apiVersion")):
            continue
        try:
            group = typed_object(document, PodGroupObject)
            raise_first(document, pod_group_problems(group))
        except InvalidInput as problem:
            yield document, problem
            continue
        earlier = first.setdefault(group.key, document)
        if earlier is document:
            yield document, group
        else:
            reason = f"there is already one of this name, in {earlier.source}:{earlier.line_of(())}"
            yield document, invalid_field(document, "metadata.name", reason)


def facts_of_objects(objects: FeatureObjects) -> list[PodGroupFacts]:
    """Return what PodGroups say; their PriorityClasses are looked up beside them.

    What is wrong with one in a cluster is a problem of its gang only. Raises InvalidInput for one in a file.
    """
    documents = objects.documents
    classes = [document for document in documents if document.data.get("kind") == PRIORITY_CLASS]
    admission = Admission([], [typed_object(document, PriorityClass) for document in classes])
    facts = []
    for document, group in checked_pod_groups(documents):
        if not isinstance(group, InvalidInput):
            facts.append(pod_group_facts(group, admission.priority(group.spec.priority_class_name)))
        elif objects.live:
            facts.append(_unreadable(document, group))
        else:
            raise group
    return facts


def _unreadable(document: Document, problem: InvalidInput) -> PodGroupFacts:
    meta = document.data.get("metadata")
    namespace, name = (str(meta.get(field, "")) if isinstance(meta, dict) else "" for field in ("namespace", "name"))
    return unread_facts((group_of(document.data.get("apiVersion")), namespace or "default", name), problem.what)
