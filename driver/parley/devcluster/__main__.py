"""`python -m parley.devcluster`: make this machine ready for a local cluster with real nodes.

Installs the Debian packages where it may and builds the programs that are not in the cache, so that the time
is spent once, in sight. On a machine that can't run a cluster it says why; with CI=true that is an error.
"""

import os
import sys

from parley.devcluster import binaries, debian, versions
from parley.devcluster.requirements import unmet


def main() -> int:
    """Returns the exit code."""
    reasons = unmet(real_nodes=True)
    if reasons:
        for reason in reasons:
            print(f"no local cluster on this machine: {reason}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    debian.install_missing()
    binaries.obtain([*versions.CONTROL_PLANE, *versions.NODE], versions.KUBERNETES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
