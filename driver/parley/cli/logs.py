"""The format of log entries, for people or as one JSON object per line, and their lowest level.

What is logged is left to who logs it; the names of the fields are in `docs/metrics.md`.
"""

import logging
import sys
from enum import Enum

import orjson
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor


class LogFormat(Enum):
    """The format of log entries."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """The lowest level of entries that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level's number in `logging`."""
        return logging.getLevelNamesMapping()[self.name]


_WITHOUT_VALUES = ExceptionDictTransformer(show_locals=False, max_frames=30)
"""A traceback names places, never what variables held there: parameters, handles, tokens."""


def configure(form: LogFormat, level: int = logging.INFO) -> None:
    """Write log entries of that level and above to stderr."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *_rendering(form)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _rendering(form: LogFormat) -> list[Processor]:
    if form is LogFormat.JSON:
        return [
            structlog.processors.ExceptionRenderer(_WITHOUT_VALUES),
            structlog.processors.JSONRenderer(lambda entry, **_: orjson.dumps(entry, default=str).decode()),
        ]
    colors = sys.stderr.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]


def silence() -> None:
    """Log only what is critical, for commands whose output is the result."""
    configure(LogFormat.TEXT, logging.CRITICAL)
