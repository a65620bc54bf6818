"""The health of a driver's devices: asked of the driver, streamed to the kubelet."""
