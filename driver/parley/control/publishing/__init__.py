"""Writes the objects by which users follow a negotiation: PodSchedulings and events."""
