"""Writes one file per CustomResourceDefinition into the directory given: `python -m parley.api.crd crds`."""

import sys
from pathlib import Path

from parley.api.crd.definitions import manifests


def main(arguments: list[str]) -> int:
    """Write the files; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m parley.api.crd DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in manifests():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
