"""What log lines look like, and which are written."""

import orjson
import pytest
import structlog

from parley.cli.logs import LogFormat, LogLevel, configure


def test_a_json_line_has_every_field_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.JSON)
    structlog.get_logger().info("bound", pod="team/a", node="node-1", seconds=0.25)

    entry = orjson.loads(capsys.readouterr().err)
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "bound", "level": "info", "pod": "team/a", "node": "node-1", "seconds": 0.25}


def test_a_line_for_people_can_be_searched_for_a_pod(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.TEXT)
    structlog.get_logger().info("bound", pod="team/a")

    assert "pod=team/a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "error"]),
        (LogLevel.INFO, ["info", "warning", "error"]),
        (LogLevel.WARNING, ["warning", "error"]),
        (LogLevel.ERROR, ["error"]),
    ],
)
def test_a_level_leaves_out_what_is_below_it(
    level: LogLevel, written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogFormat.JSON, level.number)
    log = structlog.get_logger()
    for method in (log.debug, log.info, log.warning, log.error):
        method("something")

    assert [orjson.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == written


@pytest.mark.parametrize("form", LogFormat)
def test_a_traceback_has_no_values_of_variables(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure(form)

    def connect() -> None:
        password = "-".join(("hunter", "2"))
        raise RuntimeError(f"refused after {len(password)} letters")

    try:
        connect()
    except RuntimeError as error:
        structlog.get_logger().error("failed", exc_info=error)

    written = capsys.readouterr().err
    assert "refused after 8 letters" in written
    assert "connect" in written
    assert "hunter-2" not in written
