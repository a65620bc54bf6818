"""The extender path: a kube-scheduler that asks Parley about its own candidates and lets it bind.

`path` answers the scheduler's calls and follows what happens to pods in between, `wire` is their form, `scope`
which pods are this path's and what it does not serve. `filtering` finds viable nodes beside the `assumed` pods
(`contention` asks the drivers so); `rejections` are pods without one, and what would change that. `binding` does
all that takes time. `server` and `certificates` are the way in.
"""
