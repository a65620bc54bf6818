"""How what was allocated becomes free again: its record is cleared, nodes confirm, drivers deallocate."""
