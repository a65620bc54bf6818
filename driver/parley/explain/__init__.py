"""Answers to "why": why a pod waits or is where it is, who holds what, what would help. Reads the API only.

`reading` brings a cluster of one moment into the controller's own caches, `judging` asks the drivers that come
with Parley the controller's own questions about it, `explaining` puts everything known about a pod into an
`Explanation`, and `text` prints it. `overview` is about classes, users and waiting pods. Nothing is written.
"""
