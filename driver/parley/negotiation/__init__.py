"""Decisions only: which nodes to ask about, what the answers mean, what to do about a pod's claims.

Pure functions of frozen values. No I/O and no clock; the code that acts on decisions is in `parley.control`
and `parley.scheduler`.
"""
