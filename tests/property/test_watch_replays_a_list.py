"""A list and the watch that continues it always add up to a later list, whatever happens and whatever is selected."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound
from shiplap.kubernetes.request_bodies import BOUND_PODS, PENDING_PODS
from shiplap_lab.fakes.cluster import ApiServer, ListOptions
from shiplap_lab.fakes.signals import FakeClock
from tests.thoroughness import draws

NAMES = st.sampled_from(("a", "b", "c"))
SELECTIONS = (
    ListOptions(),
    ListOptions(namespace="other"),
    ListOptions(label_selector="app=web"),
    ListOptions(field_selector=PENDING_PODS),
    ListOptions(field_selector=BOUND_PODS),
)
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.sampled_from(("default", "other"))),
    st.tuples(st.just("label"), NAMES, st.sampled_from(("web", "db"))),
    st.tuples(st.just("phase"), NAMES, st.sampled_from(("Running", "Failed", "Pending"))),
    st.tuples(st.just("bind"), NAMES, st.just("n1")),
    st.tuples(st.just("delete"), NAMES, st.sampled_from(("", "0"))),
    st.tuples(st.just("hold"), NAMES, st.sampled_from(("example.com/hold", ""))),
)


def play(server: ApiServer, action: str, name: str, value: str) -> None:
    match action:
        case "create":
            server.create("pods", {"metadata": {"name": name, "namespace": value}, "spec": {"containers": []}})
        case "label":
            server.patch("pods", name, {"metadata": {"labels": {"app": value}}})
        case "phase":
            server.patch("pods", name, {"status": {"phase": value}}, subresource="status")
        case "bind":
            server.bind(name, value)
        case "delete":
            server.delete("pods", name, grace_s=int(value) if value else None)
        case "hold":
            server.patch("pods", name, {"metadata": {"finalizers": [value] if value else None}})


@settings(derandomize=True, deadline=None, max_examples=draws(300))
@given(before=st.lists(STEPS, max_size=12), after=st.lists(STEPS, max_size=20), selection=st.sampled_from(SELECTIONS))
def test_list_and_watch_add_up(before: list[tuple], after: list[tuple], selection: ListOptions) -> None:
    server = ApiServer(FakeClock())

    def run(steps: list[tuple]) -> None:
        for step in steps:
            try:
                play(server, *step)
            except (ObjectNotFound, ObjectConflict):
                pass  # as a client would find out
            except ClusterError as error:
                raise AssertionError(f"{step} was refused with status {error.status}") from error

    run(before)
    listed = server.list("pods", selection)
    known = {item["metadata"]["uid"]: item for item in listed.items}
    run(after)
    changes, version = server.changes("pods", listed.resource_version, selection)
    versions = [change.resource_version for change in changes]
    assert versions == sorted(set(versions))
    for change in changes:
        uid = change.object["metadata"]["uid"]
        assert change.object["metadata"]["resourceVersion"] == str(change.resource_version)
        if change.type == "DELETED":
            del known[uid]
        else:
            assert (change.type == "ADDED") == (uid not in known)
            known[uid] = change.object
    assert version == server.resource_version
    now = {item["metadata"]["uid"]: item for item in server.list("pods", selection).items}
    assert known == now
