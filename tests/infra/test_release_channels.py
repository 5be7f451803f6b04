"""`make release-check` holds the template of an example against what channels ask of it."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tools.release_check import demands


@pytest.mark.thorough
@pytest.mark.usefixtures("layers_built")
def test_each_channel_is_told_by_what_is_met() -> None:
    told = [demand.text for demand in demands()]
    for channel in ("Construct Hub: ", "Serverless Application Repository: "):
        assert [text for text in told if text.startswith(channel) and ": met, " in text]
        assert [text for text in told if text.startswith(channel) and ": not met, " in text]
