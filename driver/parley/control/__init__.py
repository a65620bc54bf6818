"""What acts: named claims and templates are reconciled, drivers allocate, records are written and cleared.

`caches` hold what the API server has, the `ledger` what Parley allocated; `state` is both with the drivers.
`claims` and `decision` are pure judgements of it; `allocation`, `records`, `release` and `restoring` change it.
"""
