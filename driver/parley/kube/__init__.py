"""An API server behind one client interface (`client`): over HTTP, in memory, with faults, fenced by a lease.

On top of it what every controller needs: `reflector` (a copy of a kind, kept up to date), `queue` (keys that need
work), `lease` (who leads). Nothing here knows what the objects mean, except that `memory` follows the server's
validation of the kinds that Parley writes.
"""
