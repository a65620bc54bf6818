"""The metrics of the process, and the limits of the HTTP servers that serve them."""
