"""Parley's node plugin: prepares the claims that Parley allocated for pods, for use in their containers."""
