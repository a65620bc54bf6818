"""Runs any `parley.sdk.Driver` outside of the controller: the driver's side of `docs/driver-protocol.md`.

`runner` wires. `view` is what the API server has, `questions` what is asked, `answering` and `lines` who is
answered when, `entries` what the answers look like; `allocating` allocates and records through `records`,
`taking_back` gives back, `immediate` allocates without a pod; `holdings` and `jobs` are what the driver holds and
what is under way.
"""

from parley.sdk.standalone.runner import StandaloneDriver

__all__ = ["StandaloneDriver"]
