"""The plugin's own node drivers: devices of this node, and workspaces on its disk."""
