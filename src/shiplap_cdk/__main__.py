"""The CDK app of one install: `cdk deploy --app "python -m shiplap_cdk"`."""

from __future__ import annotations

import sys

from shiplap.errors import InvalidInput
from shiplap.printable import printable
from shiplap_cdk.nodejs import require_nodejs
from shiplap_cdk.shipped_files import install_of


def main() -> int:
    """Synthesise, if there is a Node.js to do it with; exit code 2 for bad input."""
    try:
        require_nodejs()
    except InvalidInput as error:
        print(printable(str(error)), file=sys.stderr)  # noqa: T201
        return 2
    try:
        from shiplap_cdk.synthesis import main as synthesise  # noqa: PLC0415 - it starts Node.js
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0].startswith("shiplap"):
            raise
        told = f"{missing.name} is not installed in this environment: {install_of('cdk')}"
        print(printable(told), file=sys.stderr)  # noqa: T201
        return 2
    return synthesise()


if __name__ == "__main__":
    sys.exit(main())
