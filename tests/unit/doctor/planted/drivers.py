"""Planted faults of drivers, standalone and in the controller: not run, run twice, or silent."""

from tests.unit.doctor.planted.plants import (
    DISK_CLASS,
    ERROR,
    WARNING,
    Cases,
    all_of,
    changed,
    created,
    runs_standalone,
    standalone,
)

from parley.api.resources import POD_SCHEDULINGS
from parley.doctor import kinds

SILENT = {
    "metadata": {"name": "wants", "namespace": "team"},
    "spec": {
        "round": 2,
        "claims": [{"name": "data", "driverName": "device.parley.dev", "resourceClaimName": "wants-data"}],
    },
    "status": {"waitingFor": "DriverNotAnswering"},
}

DRIVERS_CASES: Cases = {
    "a class whose driver nobody runs": (
        DISK_CLASS,
        "drivers",
        ERROR,
        "driver disk.example.com does not run: pods that request these classes wait",
        "correct driverName of the class",
    ),
    "a standalone driver that has stopped": (
        all_of(DISK_CLASS, standalone("disk.example.com", 600)),
        "drivers",
        ERROR,
        "driver disk.example.com does not run (disks-0_1 holds it, renewed 10 min ago): class disk waits",
        "start driver disk.example.com",
    ),
    "a driver that runs in the controller and standalone": (
        standalone("device.parley.dev", 5),
        "drivers",
        WARNING,
        "driver device.parley.dev runs twice: in the controller, and standalone (disks-0_1 renewed its Lease 5 s "
        "ago). Both allocate claims with allocationMode Immediate, so the same may be handed out twice",
        "stop one of the two: leave it out of the controller's --driver options (drivers.embedded of the chart), "
        "or delete the Deployment that runs it standalone, and kubectl -n parley-system delete lease "
        "parley-driver-device.parley.dev",
    ),
    "a driver in the controller whose Lease of a standalone one is left": (
        standalone("device.parley.dev", 600),
        "drivers",
        WARNING,
        "driver device.parley.dev runs in the controller, and this Lease is left of a standalone one",
        "kubectl -n parley-system delete lease parley-driver-device.parley.dev; or, if it should run standalone, "
        "start it, and leave it out of the controller's --driver options",
    ),
    "a class of one's own that runs in the controller and standalone": (
        all_of(
            changed(
                kinds.DEPLOYMENTS,
                "parley-controller",
                *("spec", "template", "spec", "containers", 0, "args"),
                to=["--driver=device", "--driver", "disks:Disks"],
            ),
            created(kinds.DEPLOYMENTS, runs_standalone("disks:Disks")),
        ),
        "drivers",
        WARNING,
        "driver disks:Disks runs twice: in the controller, and here",
        "stop one of the two",
    ),
    "a pod that waits for an answer": (
        created(POD_SCHEDULINGS, SILENT),
        "answers",
        ERROR,
        "driver device.parley.dev does not answer: pod team/wants waits",
        "parley driver permissions",
    ),
}
