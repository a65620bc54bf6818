"""Explains why a pod waits or is where it is, who holds what, and what would help. Reads the API only.

`snapshot` reads a cluster into the controller's own caches, `feasibility` asks the drivers that come with Parley
the controller's own questions about it, `explaining` puts everything known about a pod into an
`Explanation`, and `text` prints it. `overview` lists classes, users of claims and waiting pods.
"""
