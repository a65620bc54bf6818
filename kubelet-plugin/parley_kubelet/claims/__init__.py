"""Claims on this node, from the kubelet's call to prepare one until it is given back and the controller knows."""
