"""The protocols' intervals and bounds, in microseconds unless a name says otherwise."""

from __future__ import annotations

import msgspec

SECOND = 1_000_000


class Settings(msgspec.Struct, frozen=True):
    tick: int = SECOND
    """How often a site looks after silent branches, reports what it needs, trims, and sends heartbeats."""
    punctuation_interval: int = SECOND
    """A source punctuates at least this often, and at every end of a window downstream."""
    branch_timeout: int = 3 * SECOND
    """A branch that is silent for longer is opened again; the pause doubles each time."""
    branch_timeout_most: int = 6 * SECOND
    branch_window: int = 4096
    """Records a log sends ahead of a consumer's last report: beyond it, back-pressure."""
    producer_timeout: int = 4 * SECOND
    """A producer that is not acknowledged for longer turns to the next entry point. Longer than
    ``mirror_patience``, or it would turn away from an entry point that only waits for its peers."""
    mirror_retry: int = SECOND
    mirror_patience: int = 2 * SECOND
    """An entry point that waits longer for its peers accepts with fewer, and reports it (source-given
    timestamps only)."""
    gap_patience: int = 600 * SECOND
    """How long a stream waits for a branch that does not answer before it goes on behind a gap."""
    snapshot_interval: int = 5 * SECOND
    """Of event time, between snapshots of operators that depend on all of history."""
    heartbeat_interval: int = SECOND
    message_bytes: int = 4 << 20
    """Tuples and state that one record or message carries, at most about: logs and links have their limits,
    and what is as large as that may still grow by its ids."""
    rebuild_slack: int = 0
    """Event time kept in every log beyond what its consumers need."""
