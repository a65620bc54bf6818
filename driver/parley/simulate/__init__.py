"""A cluster in memory: an API server, models of Kubernetes' components, and Parley itself.

For `parley demo`, and for tests of whole negotiations without a cluster. The models' docstrings list what
they leave out.
"""
