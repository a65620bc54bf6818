"""Metrics of the node plugin as text for Prometheus, and the small HTTP server for them and the probe."""
