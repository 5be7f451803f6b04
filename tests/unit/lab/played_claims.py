"""The claim of a played world."""

from shiplap.manifests.nodeclaim import ClaimState, PodReference
from tests.builders.claims import node_claim

CLAIM = node_claim(
    cluster="c",
    name="claim-a",
    node_pool="flex",
    node_class="default",
    state=ClaimState.INITIALIZED,
    created_at=10.0,
    first_event_at=9.0,
    instance_id="i-1",
    instance_type="c7i-flex.large",
    zone="us-east-1a",
    capacity_type="on-demand",
    ami="ami-1",
    hourly=0.08,
    node_name="node-a",
    pods=(PodReference("default", "web-0", "web-0"),),
)
