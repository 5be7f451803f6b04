"""The CDK app of one install: `cdk deploy --app "python -m shiplap_cdk"`."""

from __future__ import annotations

import sys

from shiplap_cdk.synthesis import main

if __name__ == "__main__":
    sys.exit(main())
