"""Parley's node plugin: hands what was negotiated for a pod to its containers."""
