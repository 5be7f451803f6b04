"""The command of gangs below `shiplap explain`."""

from __future__ import annotations

from shiplap_cli.command_entry import CommandEntry

EXPLAIN = {
    "provisioningrequest": CommandEntry(
        "What a ProvisioningRequest has, lacks and waits for.",
        "explain.gangs_request:provisioningrequest",
        answers="RequestAccount",
    )
}
