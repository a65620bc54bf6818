"""An API server in memory, for tests and simulations.

    server = MemoryServer()
    client = server.client()

It passes the same conformance tests as a real API server (`tests/integration/kube`). Requests and
responses are converted to JSON and back, so that no object is shared with the server.

Not implemented: authentication and admission policies, namespaces as objects (any name is accepted), pagination,
`metadata.managedFields` on the wire, validation and defaults of built-in kinds beyond what Parley needs (pods and
claims), and the control plane's controllers except the garbage collector.
"""

from parley.kube.memory.server import MemoryServer

__all__ = ["MemoryServer"]
