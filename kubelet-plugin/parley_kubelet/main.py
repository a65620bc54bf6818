"""The entry point of `parley-kubelet`: the steps before the imports of `program`, which has the rest.

Its exit status is one of `parley.api.exits`, as docs/cli.md lists them.
"""

import sys
from collections.abc import Sequence

from parley.loading import quick_imports
from parley.stdout import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    with guarded():
        return _main(sys.argv[1:] if arguments is None else arguments)


def _main(given: Sequence[str]) -> int:
    if "--version" in given or given[:1] == ["version"]:
        from importlib.metadata import version

        print(version("parley"))
        return 0
    with quick_imports():
        from parley_kubelet.program import run

    return run(given)
