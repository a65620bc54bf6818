"""Kubelets whose node plugins prepare no devices of other nodes, as the device driver's node part does not."""

from parley.api.builtin import Pod
from parley.control.mirror import allocated
from parley.drivers.device import DeviceDriver
from parley.simulate.kubelet import Kubelets


class DeviceKubelets(Kubelets):
    """A pod starts where its devices are."""

    def _usable(self, pod: Pod, name: str) -> bool:
        claim = self._claims.get(pod.metadata.namespace, name)
        found = allocated(claim, DeviceDriver.name) if claim is not None else None
        there = found is not None and all(device.pool == pod.spec.node_name for device in found.devices)
        return there and super()._usable(pod, name)
