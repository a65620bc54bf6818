"""The native path, for pods of any unmodified kube-scheduler of Kubernetes 1.36 or newer.

Parley proposes the candidates itself, selects the best viable node and allocates there; the scheduler binds. If
it refuses that node, Parley offers all viable nodes and lets the scheduler choose. `path` takes one pod's next
step, `claim_order` decides which pod gets a free exclusive named claim first.
"""
