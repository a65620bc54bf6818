"""The checks, by what they look at. Each is a pure function of the facts that gives findings, also good ones."""
