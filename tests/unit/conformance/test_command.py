"""`parley driver conformance`: a real process over HTTP, what is printed, and how the command ends."""

import sys
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from parley.cli.main import app
from parley.conformance.checks import CHECKS

ROOT = Path(__file__).parents[3]
MANIFESTS = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClass
metadata: {name: seats}
driverName: seats.example.com
parameters: {seats: 1}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: one}
spec: {resourceClassName: seats, parameters: {seats: 1}}
"""
CLASS = MANIFESTS.partition("---")[0]
TWO_CLASSES = f"{MANIFESTS}---{CLASS.replace('name: seats', 'name: beds')}"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "seats.yaml"
    path.write_text(MANIFESTS)
    return path


def conformance(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["driver", "conformance", *arguments])


def started(broken: str = "") -> tuple[str, str]:
    return "--start", f"cd {ROOT} && exec {sys.executable} -m tests.unit.conformance.alone {broken}"


def checked(*names: str) -> list[str]:
    return [word for name in names for word in ("--check", name)]


def test_a_process_is_checked_over_http_and_killed_and_started_again(manifests: Path) -> None:
    result = conformance(str(manifests), *started(), *checked("restart-holds"), "--settle", "0.5")

    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "passed   answers                    A question is answered, with its round.\n"
        "passed   restart-holds              After a restart the driver holds what the API says.\n"
        "\nseats.example.com: 2 passed, 0 failed, 0 skipped\n"
    )


def test_a_failure_names_the_object_the_rule_and_what_was_seen(manifests: Path) -> None:
    result = conformance(str(manifests), *started("shareable"), *checked("shareable"))

    assert result.exit_code == 12
    assert result.stdout.splitlines()[1:5] == [
        "failed   shareable                  The allocation is shareable as its class is.",
        "         ResourceClaim conformance-shareable/claim-1",
        '         expected: allocation.shareable true, as in its class (docs/driver-protocol.md, "2. Allocate")',
        "         seen: it is not set",
    ]


def test_results_are_data_as_well(manifests: Path) -> None:
    result = conformance(str(manifests), *started("answers"), "-o", "json", "--timeout", "2")

    assert result.exit_code == 12
    found = orjson.loads(result.stdout)
    assert (found["kind"], found["driver"]) == ("ConformanceReport", "seats.example.com")
    first, *others = found["items"]
    assert (first["check"], first["section"], first["outcome"]) == ("answers", "1. Answer", "failed")
    assert {(item["outcome"], item["why"]) for item in others} == {("skipped", "needs answers, which failed")}
    assert len(others) == len(CHECKS) - 1


def test_results_are_a_table_or_the_names_of_what_failed(manifests: Path) -> None:
    asked = (str(manifests), *started("shareable"), *checked("shareable"))
    table = conformance(*asked, "-o", "wide")
    bare = conformance(*asked, "-o", "wide", "--no-headers")
    names = conformance(*asked, "-o", "name")

    assert [result.exit_code for result in (table, bare, names)] == [12, 12, 12]
    heading, *rows = table.stdout.splitlines()
    assert heading.split() == ["OUTCOME", "CHECK", "SECTION", "RULE", "ABOUT", "EXPECTED", "SEEN"]
    assert bare.stdout.splitlines()[1].split() == rows[1].split()
    assert rows[1].startswith("failed   shareable  2. Allocate  The allocation is shareable as its class is.")
    assert rows[1].endswith("it is not set")
    assert names.stdout == "check/shareable\n"


def test_a_driver_that_ends_is_shown_with_its_last_words(manifests: Path) -> None:
    result = conformance(str(manifests), "--start", "echo no such disk; exit 3", "--timeout", "1")

    assert result.exit_code == 12
    assert "the driver ended with 3. The end of its output:\nno such disk\n" in result.stderr


def test_without_start_the_author_is_told_how_to_start_and_restarts_are_skipped(manifests: Path) -> None:
    result = conformance(str(manifests), "--timeout", "1", *checked("restart-holds"))

    assert result.stderr.startswith("start seats.example.com now, with KUBECONFIG=")
    assert "skipped" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        ((), "", "no ResourceClass in the files: add one of the driver's"),
        (("--check", "speed"), MANIFESTS, "there is no check 'speed': choose among answers, allocates,"),
        (("--class", "beds"), MANIFESTS, "no ResourceClass 'beds' in the files: they have seats"),
        (
            (),
            MANIFESTS.partition("---")[0],
            "no ResourceClaim or ResourceClaimTemplate of class 'seats' in the files",
        ),
        (
            (),
            MANIFESTS + "---" + MANIFESTS.partition("---")[0].replace("name: seats", "name: beds"),
            "choose one with",
        ),
    ],
)
def test_wrong_input_is_named(tmp_path: Path, arguments: tuple[str, ...], text: str, words: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    result = conformance(str(path), *arguments)

    assert result.exit_code == 2
    assert words in result.stderr


def test_a_cluster_is_used_only_if_it_is_meant(manifests: Path) -> None:
    result = conformance(str(manifests), "--kubeconfig", str(manifests))

    assert result.exit_code == 2
    assert "give --real as well" in result.stderr


def test_checks_are_listed() -> None:
    result = conformance("--list")

    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [check.name for check in CHECKS]
