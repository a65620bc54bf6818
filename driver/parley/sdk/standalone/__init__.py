"""Runs any `parley.sdk.Driver` outside of the controller: the driver's side of `docs/driver-protocol.md`.

`runner` wires. `informers` are copies of what the API server has. A PodScheduling is read by `questions`, the
driver asked by `evaluation`, its answers written by `answering` (as `entries`) and kept up to date by turns
(`waiting`).
`pod_allocations` and `immediate` decide what is allocated, `claim_reconciler` what is deallocated; `allocating`
allocates and records it through `records`. `holdings` is what the driver holds, `operations` what is under way.
"""

from parley.sdk.standalone.runner import StandaloneDriver

__all__ = ["StandaloneDriver"]
