"""CDI specifications, by which a container gets its devices, and whether a container runtime would read them."""
