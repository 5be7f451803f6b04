"""The command of sleep below `shiplap status`."""

from __future__ import annotations

from shiplap_cli.command_entry import CommandEntry

STATUS = {"wake": CommandEntry("End the sleep of a cluster now.", "status.sleep_wake:wake", answers="WakeDocument")}
