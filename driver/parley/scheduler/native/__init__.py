"""The native door: any unmodified kube-scheduler of Kubernetes 1.36 or newer.

Parley proposes the candidates itself (`candidates`), selects the best viable node and allocates there; the
scheduler binds. If it refuses that node, Parley offers all viable nodes and lets the scheduler choose. `door` is
one pod's way through all this, `questions` what drivers are asked, `attempts` what is remembered of a pod,
`waiting` the pods that nothing could be done for, `telling` what users hear of it.
"""
