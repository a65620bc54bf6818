"""From a pod with claims to a bound pod: the reconciler, its two scheduling paths, and what they share.

`reconciler` takes a pod's key from the work queue and hands the pod to a path: `native` for any scheduler,
`extender` for one that asks Parley about its candidates. `pods` keeps each pod's state (`attempts`) and the
waiting lines, `candidates` finds the eligible nodes, `negotiator` decides, `standalone` negotiates with drivers in
other processes, `placement` carries decisions out, `reporting` informs users, `result` says what is next.
`changes` turns the informers' events into keys, `wiring` puts everything together, `controller` runs it.
"""
