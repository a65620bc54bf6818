"""Clients that nobody here wrote, as their users install them, on a cluster with two real nodes."""
