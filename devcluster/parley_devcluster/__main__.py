"""`python -m parley_devcluster`: make this machine ready for real nodes, a browser and container images;
`python -m parley_devcluster kind`: make the image of kind's nodes.

Installs the Debian packages where it may and builds the programs that are not in the cache, so that the time
is spent once, in sight. On a machine that can't have one of these it says why; with CI=true that is an error.
"""

import os
import sys

from parley_devcluster import binaries, debian, debian_image, docker, kind, versions
from parley_devcluster.requirements import unmet


def main() -> int:
    """Returns the exit code."""
    reasons = [f"no local cluster on this machine: {reason}" for reason in unmet(real_nodes=True)]
    if not reasons:
        debian.install_missing()
        programs = [
            *versions.CONTROL_PLANE,
            *versions.NODE,
            *versions.INSTALLER,
            *versions.ALERTS,
            *versions.PLUGINS,
        ]
        binaries.obtain(programs, versions.KUBERNETES)
    for packages, who_needs in (
        (debian.BROWSER, debian.TESTS),
        (debian.FILE_SYSTEMS, debian.DISKS),
        (debian_image.PACKAGES, debian_image.WHO),
    ):
        try:
            debian.install_missing(packages=packages, who_needs=who_needs)
        except debian.PackagesMissing as error:
            reasons.append(str(error))
    try:
        docker.unpack()
    except debian.PackagesMissing as error:
        reasons.append(str(error))
    for reason in reasons:
        print(reason, file=sys.stderr)
    return 1 if reasons and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(kind.main() if sys.argv[1:] == ["kind"] else main())
