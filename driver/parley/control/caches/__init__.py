"""The informers' caches, and what is derived from them: indexes, use of nodes, own writes, live plugins."""
