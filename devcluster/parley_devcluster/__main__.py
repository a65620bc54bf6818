"""`python -m parley_devcluster`: make this machine ready for a local cluster with real nodes, and for a browser.

Installs the Debian packages where it may and builds the programs that are not in the cache, so that the time
is spent once, in sight. On a machine that can't have one of these it says why; with CI=true that is an error.
"""

import os
import sys

from parley_devcluster import binaries, debian, versions
from parley_devcluster.requirements import unmet


def main() -> int:
    """Returns the exit code."""
    reasons = [f"no local cluster on this machine: {reason}" for reason in unmet(real_nodes=True)]
    if not reasons:
        debian.install_missing()
        binaries.obtain([*versions.CONTROL_PLANE, *versions.NODE, *versions.INSTALLER], versions.KUBERNETES)
    try:
        debian.install_missing(packages=debian.BROWSER, who_needs=debian.TESTS)
    except debian.PackagesMissing as error:
        reasons.append(str(error))
    for reason in reasons:
        print(reason, file=sys.stderr)
    return 1 if reasons and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
