"""Claims on this node, from the kubelet's call to prepare one until the controller gets the receipt."""
