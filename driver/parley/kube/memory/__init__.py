"""An API server in memory, for tests and simulations.

    server = MemoryServer()
    client = server.client()

It passes the same conformance tests as a real API server (`tests/integration/kube`). What a
caller gives and gets goes through JSON, so that nobody shares an object with the server.

What it leaves out: authentication and admission policies, namespaces as objects (any is accepted), pagination,
`metadata.managedFields` on the wire, validation and defaults of built-in kinds beyond what Parley meets (pods and
claims), and the control plane's controllers except the garbage collector.
"""

from parley.kube.memory.server import MemoryServer

__all__ = ["MemoryServer"]
