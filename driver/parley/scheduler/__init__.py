"""The doors: how Parley and a kube-scheduler agree on a node. `native` needs nothing from the scheduler."""
