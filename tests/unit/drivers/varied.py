"""Strategies: devices and demands of so many kinds that a search for a packing may take very long."""

from hypothesis import strategies as st

from parley.drivers.device.packing import ClaimDemand, DeviceKind

Gi = 1024**3

many_kinds = st.builds(
    DeviceKind,
    memory=st.integers(1, 64).map(lambda n: n * Gi),
    slices=st.integers(1, 7),
    model=st.sampled_from("xyz"),
)
many_demands = st.builds(
    ClaimDemand,
    count=st.integers(1, 32),
    model=st.sampled_from([None, "x", "y", "z"]),
    memory=st.integers(0, 64).map(lambda n: n * Gi),
    shared=st.booleans(),
)
