"""This checkout's CDK app, which cdk.json names: `npx aws-cdk deploy`. With the wheel it is `python -m shiplap_cdk`."""

from __future__ import annotations

import sys

from shiplap_cdk.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
