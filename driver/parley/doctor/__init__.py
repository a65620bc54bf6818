"""Looks at a cluster as an administrator would, and reports what is wrong with Parley
in it and how to fix it.

`facts` are gathered once, then `diagnosing` asks the pure checks in `checks`, in order. Nothing is written. What
is wrong on a single node, seen from that node, is reported by `parley-kubelet doctor`.
"""
