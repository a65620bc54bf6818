"""`device.parley.dev`: devices that nodes publish as ResourceSlices, by count, model, memory or share.

`inventory` has the devices and their holders, `packing` finds devices for several claims at once, and `driver`
is the Driver that uses both.
"""

from parley.drivers.device.driver import DeviceDriver, DeviceParameters

__all__ = ["DeviceDriver", "DeviceParameters"]
