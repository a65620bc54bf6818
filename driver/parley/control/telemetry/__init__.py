"""Metrics of the process and how they are served."""
