"""The controller's core: reconciles named claims and templates, lets drivers allocate, writes and clears records.

`caches` are the informers' caches, the `ledger` has what Parley allocated; `state` is both with the drivers.
`claims` and `decision` decide by it; `allocation`, `records`, `release` and `restoring` change it.
"""
