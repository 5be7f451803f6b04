"""The DynamoDB tables: their keys, indexes and expiry, for the adapters that use them and the stack that makes them.

Table `state`, by `cluster` and `item`:

| `cluster` | `item` | holds |
|---|---|---|
| `<cluster>` | `EPOCH` | `epoch` |
| `@account` | `OFFERING#<type>#<zone>#<capacity type>` | an offering that failed: `until`, `failures`, `code` |
| `@account` | `ADDRESSES#<token>` | what a launch takes from each subnet: JSON in `addresses`, `until` |
| `@account` | `RESERVED#<reservation>` | what launches take of it: JSON in `taken`, count and end by token |
| `@account` | `FROZEN` | there while all launches of the install are frozen, `at` an epoch second |
| `@requests` | `<region>#<action>` | requests that EC2 may be sent: `tokens` left `at` an epoch second |
| `@account` | `SPENDING` | what all clusters cost: `hourly`, and by month spent and reserved, in `month#<month>` |
| `<cluster>` | `LEDGER` | what the cluster has spent: JSON in `ledger`, `version` |
| `<cluster>` | `COUNTED` | what it has added to `SPENDING`: JSON in `counted`, `version` |
| `<cluster>` | `POD#<uid>` | a pod whose node turned out too small |
| `<cluster>` | `REFUSED#<uid>` | a pod that runs on none of the nodes that were launched for it, and their claims |
| `<cluster>` | `FUTILE#<claim>` | a node in vain: `created_at` of its claim |
| `<cluster>` | `SICK#<claim>` | a node that was sick: its `ami`, and `at` |
| `<cluster>` | `PROVEN#<kind>` | a kind of pods that nodes were seen to run, `at` an epoch second |
| `<cluster>#commands` | `COMMAND#<name>` | a disruption command: JSON in `command`, `state`, `version`, `stage` |
| `<cluster>#joins` | `POOL#<NodePool>`, `AMI#<AMI>` | how nodes have joined: JSON in `joins`, `version` |
| `<cluster>#sleep` | `NOTES` | rehearsals and nodes that left for sleep: JSON in `notes`, `version` |
| `<cluster>#sleep` | `WAKE` | a person's wake: `at`, `until`, epoch seconds |
| `<cluster>#<shard>` | `CLAIM#<name>` | a NodeClaim: JSON in `claim`, and `state`, `version`, `instanceId`, `stage` |

Claims are spread over shards because a partition takes 1,000 writes a second. Planning needs unsettled ones, read
consistently, without paying for the thousands that have become Nodes, and the sweep those that are not Gone. Hence
`stage` (`Unsettled#<name>`, `Settled#~<when>#<name>` for claims in service and failed ones, `Done#~<when>#<name>` for
those that are Gone, but `Ended#<name>` until a ledger has posted the instance to its end), the key of a *local* index,
which, unlike a global one, answers consistent reads. The index holds keys and versions only, some hundred bytes of a
claim's several thousand: `staged_items` has how a reader finds what has changed. Local indexes bind two things for the
life of a table: they are made with it, and one partition key (a shard) holds at most 10 GB.

Table `capacity`, by `ami` and `item`: `<type>#<kubelet hash>` is learned capacity, as JSON in `learned` with its
`version`; `PILOT#<type>#<kubelet hash>` is the lease of the pilot of an unverified estimate.
"""

from __future__ import annotations

from typing import NamedTuple


class Index(NamedTuple):
    """A secondary index of the items that have its keys, which are strings.

    It holds all of their attributes, or only the keys of table and index and what `with_` names.
    """

    name: str
    partition_key: str
    sort_key: str = ""
    local: bool = False
    keys_only: bool = False
    with_: tuple[str, ...] = ()


class Table(NamedTuple):
    """Keys are strings; `expiry` is the attribute of DynamoDB's time to live, epoch seconds."""

    partition_key: str
    sort_key: str
    expiry: str
    indexes: tuple[Index, ...] = ()


EXPIRY = "expiresAt"

STAGE_INDEX = Index("stage-index", "cluster", "stage", local=True, with_=("version",))
INSTANCE_ID_INDEX = Index("instance-id-index", "instanceId", keys_only=True)

STATE = Table("cluster", "item", EXPIRY, (STAGE_INDEX, INSTANCE_ID_INDEX))
CAPACITY = Table("ami", "item", EXPIRY)
