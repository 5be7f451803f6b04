"""The command of ceilings below `shiplap status`."""

from __future__ import annotations

from shiplap_cli.command_entry import CommandEntry

STATUS = {
    "spending": CommandEntry(
        "What a cluster costs this month.",
        "status.ceilings_spending:spending",
        answers="SpendingDocument WrittenCharges",
    )
}
