"""Signs a release, and verifies one: `python -m tools.signing dist/release --key KEY`, or `--verify`.

SHA256SUMS lists every file of the release, also image.txt, which names the image by its digest. Its signature,
SHA256SUMS.sig, is made with OpenSSH (`ssh-keygen -Y`), whose keys release managers have. Who may sign stands in
SIGNERS, in the form of OpenSSH's allowed_signers.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.files import SUMS, Refused, checksum, run, write_sums

ROOT = Path(__file__).parents[1]
SIGNERS = "SIGNERS"
SIGNATURE = f"{SUMS}.sig"
PURPOSE = "parley-release"
"""A signature for something else is none: OpenSSH calls it the namespace."""

IMAGE = "image.txt"
_REMEDY = "take the files from where they are published"
_BY_DIGEST = re.compile(r"[a-z0-9][a-z0-9.:/_-]*@sha256:[0-9a-f]{64}")


def sign(folder: Path, key: Path, signers: Path, image: str = "") -> list[str]:
    """Sign the release in the folder; `image` is listed, too. Raises Refused."""
    if image and not _BY_DIGEST.fullmatch(image):
        raise Refused(f"{image!r} does not name an image by its digest: give REGISTRY/NAME@sha256:DIGEST")
    if not (folder / SUMS).is_file():
        raise Refused(f"{folder} has no {SUMS}: make the release with `python -m tools.release`")
    check_sums(folder)
    if image:
        (folder / IMAGE).write_text(f"{image}\n")
    write_sums(folder)
    (folder / SIGNATURE).unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-Y", "sign", "-n", PURPOSE, "-f", str(key.absolute()), SUMS], folder)
    try:
        return verify(folder, signers)
    except Refused:
        (folder / SIGNATURE).unlink()
        raise


def verify(folder: Path, signers: Path) -> list[str]:
    """What was verified, a line each. Raises Refused if anything is not as it was signed."""
    signer = _signer(folder, signers)
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", signer, "-n", PURPOSE]
    content = (folder / SUMS).read_bytes()
    done = subprocess.run(
        [*command, "-s", str(folder / SIGNATURE)], input=content, capture_output=True, check=False
    )
    if done.returncode:
        raise Refused(
            f"{SIGNATURE} is no signature of {SUMS} by {signer}: take the files from where they are published"
        )
    names = check_sums(folder)
    return [f"{SUMS} was signed by {signer}", *(f"{name}: as signed" for name in names)]


def _signer(folder: Path, signers: Path) -> str:
    """Whose key the signature was made with. Raises Refused if it is nobody's who may sign."""
    if not (folder / SIGNATURE).is_file():
        raise Refused(f"{folder} has no {SIGNATURE}: nobody signed this release")
    command = ["ssh-keygen", "-Y", "find-principals", "-f", str(signers), "-s", str(folder / SIGNATURE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise Refused(f"{SIGNATURE} was not made with a key of anybody in {signers.name}")
    return done.stdout.split()[0]


def check_sums(folder: Path) -> list[str]:
    """The names of the files, all of which are as listed, and none is missing in the list. Raises Refused."""
    lines = (line.partition("  ") for line in (folder / SUMS).read_text().splitlines())
    listed = {name: digest for digest, _, name in lines}
    for name, digest in listed.items():
        if "/" in name or not (folder / name).is_file():
            raise Refused(f"{name} is listed in {SUMS} and is not there")
        if checksum(folder / name) != digest:
            raise Refused(
                f"{name} is not as it was when {SUMS} was written: take the files from where they are published"
            )
    there = {file.name for file in folder.iterdir()} - {SUMS, SIGNATURE}
    if unlisted := sorted(there - listed.keys()):
        raise Refused(f"{unlisted[0]} is not listed in {SUMS}: remove it")
    return list(listed)


def main(arguments: Sequence[str] | None = None, signers: Path = ROOT / SIGNERS) -> int:
    """The exit status: 0 if it was signed or is as signed, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tools.signing", description="Sign or verify a release.")
    parser.add_argument("folder", type=Path, help="the release's files, such as dist/release")
    parser.add_argument("--key", type=Path, help="your OpenSSH key, or its public half if an agent has it")
    parser.add_argument("--image", default="", help="the image, as REGISTRY/NAME@sha256:DIGEST")
    parser.add_argument("--verify", action="store_true", help="verify, and change nothing")
    parser.add_argument("--signers", type=Path, default=signers, help="who may sign; default: SIGNERS")
    options = parser.parse_args(arguments)
    if options.verify == bool(options.key):
        parser.error("give --key to sign, or --verify")
    try:
        if options.verify:
            lines = verify(options.folder, options.signers)
        else:
            lines = sign(options.folder, options.key, options.signers, options.image)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
