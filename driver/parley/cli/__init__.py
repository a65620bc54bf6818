"""The command `parley`: each command parses its arguments and makes one call."""
