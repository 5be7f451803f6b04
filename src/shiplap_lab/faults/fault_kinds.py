"""All kinds of faults, one line each. Campaigns that name none draw from all: the order is part of every seed."""

from __future__ import annotations

from shiplap_lab.faults.ec2.address_again import AddressAgainFault
from shiplap_lab.faults.ec2.ami_drift import AmiDriftFault
from shiplap_lab.faults.ec2.describe_lag import DescribeLagFault
from shiplap_lab.faults.ec2.long_pending import LongPendingFault
from shiplap_lab.faults.ec2.no_capacity import NoCapacityFault
from shiplap_lab.faults.ec2.quota import QuotaFault
from shiplap_lab.faults.ec2.reprice import RepriceFault
from shiplap_lab.faults.ec2.slow_end import SlowEndFault
from shiplap_lab.faults.ec2.subnets import SubnetsFault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.functions.clock_skew import ClockSkewFault
from shiplap_lab.faults.functions.cold_start import ColdStartFault
from shiplap_lab.faults.functions.crash import CrashFault
from shiplap_lab.faults.functions.twice import TwiceFault
from shiplap_lab.faults.functions.upgrade import UpgradeFault
from shiplap_lab.faults.instances.ends_at_once import EndsAtOnceFault
from shiplap_lab.faults.instances.interruption import InterruptFault
from shiplap_lab.faults.instances.late_warning import LateWarningFault
from shiplap_lab.faults.instances.rebalance import RebalanceFault
from shiplap_lab.faults.instances.stray import StrayFault
from shiplap_lab.faults.instances.terminate import TerminateFault
from shiplap_lab.faults.manifests.edit_and_back import EditAndBackFault
from shiplap_lab.faults.manifests.invalid_manifest import InvalidManifestFault
from shiplap_lab.faults.manifests.karpenter_lease import KarpenterLeaseFault
from shiplap_lab.faults.manifests.manifests_denied import ManifestsDeniedFault
from shiplap_lab.faults.manifests.nodeclaims_deleted import NodeclaimsDeletedFault
from shiplap_lab.faults.manifests.nodes_deleted import NodesDeletedFault
from shiplap_lab.faults.manifests.own_nodeclaim import OwnNodeclaimFault
from shiplap_lab.faults.manifests.pools_deleted import PoolsDeletedFault
from shiplap_lab.faults.messages.delay import DelayFault
from shiplap_lab.faults.messages.double import DoubleFault
from shiplap_lab.faults.messages.lose import LoseFault
from shiplap_lab.faults.messages.recursion import RecursionFault
from shiplap_lab.faults.nodes.broken_node import BrokenNodeFault
from shiplap_lab.faults.nodes.flap import FlapFault
from shiplap_lab.faults.nodes.late_device import LateDeviceFault
from shiplap_lab.faults.nodes.late_join import LateJoinFault
from shiplap_lab.faults.nodes.never_join import NeverJoinFault
from shiplap_lab.faults.nodes.never_ready import NeverReadyFault
from shiplap_lab.faults.nodes.startup_taint import StartupTaintFault
from shiplap_lab.faults.nodes.taint import TaintFault
from shiplap_lab.faults.nodes.uneven import UnevenFault
from shiplap_lab.faults.objects.late_daemon_set import DaemonSetFault
from shiplap_lab.faults.objects.pdb_zero import PdbZeroFault
from shiplap_lab.faults.objects.watch_closed import WatchClosedFault
from shiplap_lab.faults.objects.watch_gone import WatchGoneFault
from shiplap_lab.faults.requests.answer_lost import AnswerLostFault
from shiplap_lab.faults.requests.api_down import ApiDownFault
from shiplap_lab.faults.requests.conflict import ConflictFault
from shiplap_lab.faults.requests.no_answer import NoAnswerFault
from shiplap_lab.faults.requests.refuse import RefuseFault
from shiplap_lab.faults.requests.slow import SlowFault
from shiplap_lab.faults.requests.throttle import ThrottleFault
from shiplap_lab.faults.stores.index_lag import IndexLagFault
from shiplap_lab.faults.stores.restore import RestoreFault
from shiplap_lab.faults.stores.snapshot_corrupt import SnapshotCorruptFault
from shiplap_lab.faults.stores.snapshot_lost import SnapshotLostFault

FAULTS: tuple[type[FaultKind], ...] = (
    LoseFault,
    DoubleFault,
    DelayFault,
    CrashFault,
    RefuseFault,
    ThrottleFault,
    AnswerLostFault,
    SlowFault,
    ConflictFault,
    ApiDownFault,
    NoCapacityFault,
    NoAnswerFault,
    DescribeLagFault,
    InterruptFault,
    TerminateFault,
    NeverJoinFault,
    LateJoinFault,
    TaintFault,
    StrayFault,
    QuotaFault,
    IndexLagFault,
    UpgradeFault,
    NeverReadyFault,
    FlapFault,
    StartupTaintFault,
    LateWarningFault,
    TwiceFault,
    ClockSkewFault,
    ColdStartFault,
    EndsAtOnceFault,
    LongPendingFault,
    SlowEndFault,
    AddressAgainFault,
    AmiDriftFault,
    SubnetsFault,
    PdbZeroFault,
    DaemonSetFault,
    RestoreFault,
    WatchClosedFault,
    WatchGoneFault,
    SnapshotCorruptFault,
    SnapshotLostFault,
    LateDeviceFault,
    UnevenFault,
    BrokenNodeFault,
    RecursionFault,
    RepriceFault,
    RebalanceFault,
    PoolsDeletedFault,
    ManifestsDeniedFault,
    KarpenterLeaseFault,
    InvalidManifestFault,
    EditAndBackFault,
    NodeclaimsDeletedFault,
    NodesDeletedFault,
    OwnNodeclaimFault,
)

KINDS = {kind.name: kind for kind in FAULTS}
"""By the name that scenarios use."""
