"""The claims that this node has prepared, on its disk: the checkpoint, migration of older ones, batched writes."""
