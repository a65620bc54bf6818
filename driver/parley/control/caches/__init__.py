"""What informers deliver, as far as it is read, and what follows from it: use of nodes, own writes, plugins."""
