"""What this node has prepared, on its disk: the checkpoint file, its older versions, writes that calls share."""
