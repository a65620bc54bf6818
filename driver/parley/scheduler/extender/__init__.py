"""The extender path, for pods of a kube-scheduler that asks Parley about its candidates and lets Parley bind.

`path` answers the scheduler's calls and reconciles its pods in between, `wire` defines the calls' JSON, `scope`
decides which pods belong to this path. `filtering` finds viable nodes, taking the `assumed` pods into account
(`contention` asks the drivers accordingly); `rejections` keeps the pods without a viable node until that changes.
`binding` allocates, records and binds. `server` and `certificates` are the HTTP endpoint.
"""
