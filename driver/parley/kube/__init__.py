"""An API server behind one client interface (`client`): over HTTP, in memory, with faults, fenced by a lease.

On top of it what every controller needs: `informer` (list and watch a kind into a cache), `queue` (keys to
reconcile), `lease` (who leads). Nothing here knows what the objects mean, except that `memory` follows the
server's validation of the kinds that Parley writes.
"""
