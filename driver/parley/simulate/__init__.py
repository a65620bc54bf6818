"""A cluster in memory: an API server, models of what Kubernetes runs around Parley, and Parley itself.

For `parley demo`, and for tests of whole negotiations without a cluster. The models' docstrings list what
they leave out.
"""
