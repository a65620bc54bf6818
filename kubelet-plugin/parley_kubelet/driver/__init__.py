"""The plugin's own node driver, `devices`: which devices this node has, how they are, and who may have them."""
