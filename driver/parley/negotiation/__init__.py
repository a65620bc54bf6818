"""Decisions only: which nodes to ask the drivers about, what their answers mean, the next step for a pod's claims.

Pure functions of frozen values. No I/O and no clock; the code that acts on decisions is in `parley.control`
and `parley.scheduler`.
"""
