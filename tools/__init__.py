"""Programs of the project itself: the docs site, releases. Nothing here is installed on a cluster."""
