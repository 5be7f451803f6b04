"""The members of a gang that wait, as `shiplap top` shows them."""

from __future__ import annotations

from shiplap.drawing.picture import PendingPicture
from shiplap.kubernetes.objects import Pod
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.inputs.cluster_events import ObjectChanged, ObjectsListed
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.unit.cli.top.framed import NOON, followed


def member(number: int, total: int = 4, group: str = "train", **fields: str) -> Pod:
    labels = {"kueue.x-k8s.io/pod-group-name": group}
    total_of = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    return pod(f"{group}-{number}", "500m", labels=labels, annotations=total_of, **fields)


def of(*pods: Pod) -> FollowedCluster:
    return followed(ObjectsListed("nodes", (node("a"),)), ObjectsListed("pods", pods))


def groups(following: FollowedCluster) -> dict[str, str]:
    pending: tuple[PendingPicture, ...] = following.picture(NOON).pending
    return {each.name: each.group for each in pending}


def test_members_that_wait_name_their_gang() -> None:
    following = of(*(member(number) for number in range(3)), member(3, node="a"), member(0, 2, "short"), pod("web"))
    assert groups(following) == {
        **dict.fromkeys(("train-0", "train-1", "train-2"), "gang default/train: 3 wait, 1 of 4 have a place"),
        "short-0": "gang default/short: 1 wait, 0 of 2 have a place; 1 of 2 members exist, nobody makes the others",
        "web": "",
    }
    following.apply(ObjectChanged("pods", member(3, node="a"), gone=True))
    assert groups(following)["train-0"] == (
        "gang default/train: 3 wait, 0 of 4 have a place; 3 of 4 members exist, nobody makes the others"
    )


def test_pods_of_no_gang_wait_alone() -> None:
    assert groups(of(pod("web"), pod("api"))) == {"web": "", "api": ""}
