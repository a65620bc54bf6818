"""`device.parley.dev`: devices that nodes publish as ResourceSlices, by count, model, memory or share.

`inventory` knows what exists and what is held, `packing` finds devices for several claims at once, `driver`
is the Driver over both.
"""

from parley.drivers.device.driver import DeviceDriver, DeviceParameters

__all__ = ["DeviceDriver", "DeviceParameters"]
