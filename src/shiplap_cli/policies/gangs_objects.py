"""PodGroups in files: what they say of gangs, or file, line, field and reason of what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.pod_groups import KIND, PodGroupObject, group_of, pod_group_facts, pod_group_problems
from shiplap_cli.inputs.object_validation import invalid_field, raise_first, typed_object
from shiplap_cli.inputs.pod_templates.admission import Admission, PriorityClass

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


def facts_of_files(documents: Sequence[Document]) -> list[PodGroupFacts]:
    """Return what the PodGroups of files say; their PriorityClasses are looked up beside them. Raises InvalidInput."""
    classes = [document for document in documents if document.data.get("kind") == PRIORITY_CLASS]
    admission = Admission([], [typed_object(document, PriorityClass) for document in classes])
    facts = []
    for _, group in checked_pod_groups(documents):
        if isinstance(group, InvalidInput):
            raise group
        facts.append(pod_group_facts(group, admission.priority(group.spec.priority_class_name)))
    return facts
