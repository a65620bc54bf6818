"""What acts: mirrors of templates and claims, allocation and giving back, PodSchedulings, events.

`cluster` holds what the API server has, `ledger` what Parley allocated; everything else reads these two and
writes through the client.
"""
