"""The exit status of Parley's programs: one for each situation, as docs/cli.md lists them."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit statuses that a script can distinguish."""

    DONE = 0
    FAILED = 1
    WRONG_INPUT = 2
    NO_ANSWER = 3
    NO_ACCESS = 4
    FORBIDDEN = 5
    NOT_FOUND = 6
    ADDRESS_TAKEN = 7
    TO_MEND = 8
    NOT_CHECKED = 9
    WAITING = 10
    IN_USE = 11
    NOT_CONFORMING = 12
