"""Decisions only: which nodes to ask about, what the answers mean, what to do about a pod's claims.

Pure functions of frozen values. No I/O and no clock; whoever acts on a decision sits in `parley.control`
and `parley.scheduler`.
"""
