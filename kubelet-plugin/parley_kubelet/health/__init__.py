"""The health of a driver's devices: polled from the driver, streamed to the kubelet."""
