"""Runs any `parley.sdk.Driver` outside of the controller: the driver's side of `docs/driver-protocol.md`.

`runner` wires the parts together. `informers` caches the API's objects. `questions` reads a PodScheduling,
`evaluation` asks the driver, `answering` writes its answers (as `entries`), and `waiting` decides in which order
they are brought up to date.
`pod_allocations` and `immediate` decide what to allocate, `claim_reconciler` what to deallocate; `allocating`
allocates and records through `records`. `holdings` has the allocations, `operations` the calls under way.
"""

from parley.sdk.standalone.runner import StandaloneDriver

__all__ = ["StandaloneDriver"]
