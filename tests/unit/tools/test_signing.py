"""A release is signed by who may, and every changed byte, missing or added file is found. Keys are new."""

import subprocess
from pathlib import Path

import pytest
from tests.support.shell import PROGRAMS, path, typed
from tests.support.shown import commands, shown
from tools import signing
from tools.files import SUMS, write_sums

ROOT = Path(__file__).parents[3]
RELEASING = (ROOT / "docs" / "releasing.md").read_text()
IMAGE = f"registry.example.com/parley@sha256:{'0' * 64}"
FILES = ("parley-0.2.0-py3-none-any.whl", "parley-0.2.0.tgz", "parley-0.2.0-py3-none-any.cdx.json")


def make_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key")


@pytest.fixture
def signers(tmp_path: Path, key: Path) -> Path:
    path = tmp_path / "SIGNERS"
    public = key.with_suffix(".pub").read_text()
    path.write_text(f'# comment\nmanager@example.com namespaces="parley-release" {public}')
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release that nobody signed yet."""
    made = tmp_path / "release"
    made.mkdir()
    for name in FILES:
        (made / name).write_text(f"content of {name}")
    write_sums(made)
    return made


@pytest.fixture
def signed(folder: Path, key: Path, signers: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert signing.main([str(folder), "--key", str(key), "--image", IMAGE], signers) == 0, capsys.readouterr().err
    capsys.readouterr()
    return folder


def refused(capsys: pytest.CaptureFixture[str], signers: Path, *arguments: str | Path) -> str:
    assert signing.main([str(argument) for argument in arguments], signers) == 1
    return capsys.readouterr().err.strip().removeprefix("error: ")


def test_what_was_signed_is_verified(signed: Path, signers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert signing.main([str(signed), "--verify"], signers) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "SHA256SUMS was signed by manager@example.com"
    assert lines[1:] == [f"{name}: as signed" for name in sorted((*FILES, "image.txt"))]
    assert (signed / "image.txt").read_text() == f"{IMAGE}\n"
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=signed, check=True)


def checkout_with(release: Path, folder: Path) -> Path:
    """A checkout in the folder, in which dist/release is that one."""
    reader = folder / "reader"
    (reader / "dist").mkdir(parents=True)
    for link, target in {"tools": ROOT / "tools", "dist/release": release}.items():
        (reader / link).symlink_to(target)
    return reader


def test_a_release_is_signed_by_the_command_of_the_docs(
    folder: Path, key: Path, signers: Path, tmp_path: Path
) -> None:
    manager = checkout_with(folder, tmp_path)
    (manager / "SIGNERS").write_text(signers.read_text())
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").symlink_to(key)
    command = shown(RELEASING, "python -m tools.signing dist/release --key")

    environment = {"PATH": path(PROGRAMS), "PYTHONPATH": "", "HOME": str(tmp_path)}
    typed(command.replace("sha256:...", f"sha256:{'0' * 64}"), manager, environment)

    assert signing.main([str(folder), "--verify"], signers) == 0
    assert (folder / "image.txt").read_text() == f"{IMAGE}\n"


def test_a_signature_is_verified_by_the_commands_of_the_docs(signed: Path, signers: Path, tmp_path: Path) -> None:
    by_python, by_openssh, sums = (it for it, _ in commands(RELEASING) if "verify" in it or "sha256sum" in it)
    reader = checkout_with(signed, tmp_path)
    for place in (reader, signed):
        (place / "SIGNERS").write_text(signers.read_text().replace("manager@example.com", "NAME@EXAMPLE.COM"))

    environment = {"PATH": path(PROGRAMS), "PYTHONPATH": ""}
    opened = typed(f"{by_openssh}\n{sums}", signed, environment)
    (signed / "SIGNERS").unlink()
    verified = typed(by_python, reader, environment)

    assert opened.startswith('Good "parley-release" signature for NAME@EXAMPLE.COM')
    assert "image.txt: OK" in opened
    assert verified.startswith("SHA256SUMS was signed by NAME@EXAMPLE.COM")


@pytest.mark.parametrize("name", [*FILES, "image.txt"])
def test_a_changed_byte_is_found(
    signed: Path, signers: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((signed / name).read_bytes())
    content[-1] ^= 1
    (signed / name).write_bytes(content)

    assert refused(capsys, signers, signed, "--verify").startswith(f"{name} is not as it was when SHA256SUMS was")


def test_a_list_that_was_written_anew_is_found(
    signed: Path, signers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (signed / FILES[0]).write_text("something else")
    write_sums(signed)

    words = refused(capsys, signers, signed, "--verify")

    assert words.startswith("SHA256SUMS.sig is no signature of SHA256SUMS by manager@example.com")


def test_missing_and_added_files_are_found(
    signed: Path, signers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (signed / "more.whl").touch()
    assert refused(capsys, signers, signed, "--verify") == "more.whl is not listed in SHA256SUMS: remove it"
    (signed / "more.whl").unlink()
    (signed / FILES[1]).unlink()
    words = f"{FILES[1]} is listed in SHA256SUMS and is not there"
    assert refused(capsys, signers, signed, "--verify") == words


def test_who_may_not_sign_leaves_no_signature(
    folder: Path, signers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = make_key(tmp_path / "stranger")

    words = refused(capsys, signers, folder, "--key", stranger)

    assert words == "SHA256SUMS.sig was not made with a key of anybody in SIGNERS"
    assert not (folder / f"{SUMS}.sig").exists()
    assert refused(capsys, signers, folder, "--verify").endswith("nobody signed this release")


def test_a_signature_for_another_purpose_is_none(
    signed: Path, key: Path, signers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (signed / f"{SUMS}.sig").unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, signed / SUMS], check=True)

    assert "is no signature of SHA256SUMS" in refused(capsys, signers, signed, "--verify")


def test_an_image_is_named_by_its_digest(
    folder: Path, key: Path, signers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = refused(capsys, signers, folder, "--key", key, "--image", "registry.example.com/parley:0.2.0")

    assert words == (
        "'registry.example.com/parley:0.2.0' does not name an image by its digest: "
        "give REGISTRY/NAME@sha256:DIGEST"
    )
