"""What users read: PodSchedulings and events."""
