"""Programs that run to their end."""

import sys
from pathlib import Path

import pytest

from parley_devcluster import commands

ECHO = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper(), end='')"]


def test_what_it_printed_is_returned(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("from a file")

    assert commands.run(ECHO, RuntimeError, stdin="text") == "TEXT"
    assert commands.run(ECHO, RuntimeError, stdin=tmp_path / "given") == "FROM A FILE"
    assert commands.run(ECHO, RuntimeError) == ""


def test_it_has_the_environment_that_is_given() -> None:
    shown = [sys.executable, "-c", "import os; print(os.environ['PLACE'])"]

    assert commands.run(shown, RuntimeError, environment={"PLACE": "node-1"}) == "node-1\n"


def test_a_failure_has_the_end_of_what_it_said() -> None:
    fails = [sys.executable, "-c", "import sys; sys.exit('\\n'.join(map(str, range(100))))"]

    with pytest.raises(OSError, match=r"^count failed \(exit status 1\): 85\n86\n(.*\n)+99$"):
        commands.run(fails, OSError, shown="count")


def test_one_that_does_not_end_is_a_failure_too() -> None:
    with pytest.raises(OSError, match=r"^sleep 60 was not done within 1 s$"):
        commands.run(["sleep", "60"], OSError, limit=1)
