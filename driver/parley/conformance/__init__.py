"""The conformance kit: runs a standalone driver, in any language, against docs/driver-protocol.md.

The kit plays the controller on an API server, in memory or a real one; the driver reaches it over HTTP (`serving`)
through `traffic`, which remembers the driver's writes and can hold them back. Each check (`checks`) is one rule of
the protocol, played in a namespace with a class of its own (`stage`). `running` runs them, `report` prints them.
"""

from parley.conformance.results import CheckOutcome, CheckResult
from parley.conformance.subject import Subject

__all__ = ["CheckOutcome", "CheckResult", "Subject"]
