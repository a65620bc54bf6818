"""The API objects in which allocations are shown and recorded: mirrors and stand-ins, read and composed; and what
pods say about themselves. Pure."""
