"""Claims on this node, from the kubelet's call to prepare one until it is released and the controller knows."""
