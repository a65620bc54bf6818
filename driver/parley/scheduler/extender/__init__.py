"""The extender door: a kube-scheduler that asks Parley about its own candidates and lets it bind.

`door` answers the scheduler's calls and follows what happens to pods in between, `wire` is what is said, `scope`
which pods are this door's and what it does not serve. A filter is a `judging` beside what `holds` promised to
other pods a moment ago; `rejected` are pods that were refused and what would change that. `binding` does all that
takes time. `server` and `certificates` are the way in.
"""
