"""A disk array behind a fabric, simulated: volumes, each of which can be attached to one node, in its own time.

It stands for somebody else's product and knows nothing of Kubernetes or Parley. Every request may be repeated: a
volume has the name that its user gave it. `Array` decides; below it is HTTP.

    PUT    /volumes/NAME             {"sizeGiB": 10}      create it
    PUT    /volumes/NAME/attachment  {"node": "node-1"}   begin to attach it; repeat to see how far it is
    DELETE /volumes/NAME                                  detach and delete it, whatever its state
    GET    /volumes  /volumes/NAME
    GET    /                                              capacity, and the nodes that the fabric reaches
    PUT    /faults/NODE   {"message": "port is down", "permanent": false}     the next volume attached there fails
    DELETE /faults/NODE
"""

import argparse
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

Clock = Callable[[], float]


class Refused(Exception):
    """The array cannot do it. `permanent`: and it never will."""

    def __init__(self, status: int, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.status, self.permanent = status, permanent


@dataclass(frozen=True)
class Options:
    """What the array is like. Attaching takes `seconds`."""

    state: Path
    nodes: tuple[str, ...]
    capacity: int = 100
    seconds: float = 20.0


@dataclass(frozen=True)
class Fault:
    """Why attaching to a node fails: the next time only, or always."""

    message: str = "the node does not answer"
    permanent: bool = False


@dataclass(frozen=True)
class Attachment:
    """How far it is follows from the clock: nothing runs meanwhile, and a restart loses nothing."""

    node: str
    began: float
    seconds: float
    fault: Fault | None = None

    def shown(self, now: float) -> dict[str, Any]:
        """As users see it. What fails does so when half of the time is over."""
        part = min(1.0, (now - self.began) / self.seconds) if self.seconds else 1.0
        shown = {"node": self.node, "state": "Attached" if part == 1 else "Attaching", "percent": int(100 * part)}
        if self.fault is not None and part >= 0.5:
            return {**shown, "state": "Failed", "percent": 50, **asdict(self.fault)}
        return shown


@dataclass(frozen=True)
class Volume:
    name: str
    size: int
    attachment: Attachment | None = None


class Array:
    """The volumes, in memory and in a file that is written with every change."""

    def __init__(self, options: Options, clock: Clock = time.time) -> None:
        self._options, self._clock = options, clock
        self._volumes: dict[str, Volume] = {}
        self._faults: dict[str, Fault] = {}
        if options.state.exists():
            saved = json.loads(options.state.read_text())
            self._volumes = {volume["name"]: _volume(volume) for volume in saved["volumes"]}
            self._faults = {node: Fault(**fault) for node, fault in saved["faults"].items()}

    def overview(self) -> dict[str, Any]:
        """What there is and what is left."""
        used = sum(volume.size for volume in self._volumes.values())
        capacity = self._options.capacity
        return {"capacityGiB": capacity, "freeGiB": capacity - used, "nodes": list(self._options.nodes)}

    def volumes(self) -> list[dict[str, Any]]:
        """All of them."""
        return [self.volume(name) for name in self._volumes]

    def volume(self, name: str) -> dict[str, Any]:
        """One volume and how far its attachment is."""
        if name not in self._volumes:
            raise Refused(404, f"there is no volume {name}")
        volume = self._volumes[name]
        attachment = volume.attachment.shown(self._clock()) if volume.attachment else None
        return {"name": name, "sizeGiB": volume.size, "attachment": attachment}

    def create(self, name: str, size: int) -> dict[str, Any]:
        """The volume, made now or earlier."""
        known = self._volumes.get(name)
        if known is not None and known.size != size:
            raise Refused(409, f"volume {name} has {known.size} GiB, not {size}", permanent=True)
        if known is None:
            if size > self._options.capacity:
                raise Refused(422, f"{size} GiB are more than the array has", permanent=True)
            if size > (free := self.overview()["freeGiB"]):
                raise Refused(507, f"{free} GiB free, {size} wanted")
            self._keep(Volume(name, size))
        return self.volume(name)

    def attach(self, name: str, node: str) -> dict[str, Any]:
        """Begins, or goes on. One that failed stays so until the volume is deleted."""
        attachment = self._volumes[name].attachment if name in self._volumes else None
        if attachment is not None and attachment.node != node:
            raise Refused(409, f"volume {name} is attached to {attachment.node}: delete it first")
        if node not in self._options.nodes:
            raise Refused(422, f"the fabric does not reach node {node}", permanent=True)
        if attachment is None:
            size = self.volume(name)["sizeGiB"]
            begun = Attachment(node, self._clock(), self._options.seconds, self._next_fault(node))
            self._keep(Volume(name, size, begun))
        return self.volume(name)

    def delete(self, name: str) -> None:
        """Detach and delete it, if it is there."""
        if self._volumes.pop(name, None) is not None:
            self._save()

    def fail(self, node: str, fault: Fault | None) -> None:
        """Let attaching to the node fail, or no more."""
        self._faults.pop(node, None)
        if fault is not None:
            self._faults[node] = fault
        self._save()

    def _next_fault(self, node: str) -> Fault | None:
        fault = self._faults.get(node)
        if fault is not None and not fault.permanent:
            del self._faults[node]
        return fault

    def _keep(self, volume: Volume) -> None:
        self._volumes[volume.name] = volume
        self._save()

    def _save(self) -> None:
        volumes = [asdict(volume) for volume in self._volumes.values()]
        faults = {node: asdict(fault) for node, fault in self._faults.items()}
        partial = self._options.state.with_suffix(".partial")
        partial.write_text(json.dumps({"volumes": volumes, "faults": faults}, indent=2))
        partial.replace(self._options.state)


def _volume(saved: Mapping[str, Any]) -> Volume:
    attachment = saved["attachment"]
    if attachment is None:
        return Volume(saved["name"], saved["size"])
    fault = Fault(**attachment["fault"]) if attachment["fault"] else None
    return Volume(saved["name"], saved["size"], Attachment(**{**attachment, "fault": fault}))


def application(array: Array) -> web.Application:
    """The array over HTTP."""

    async def overview(_: web.Request) -> web.Response:
        return web.json_response(array.overview())

    async def volumes(_: web.Request) -> web.Response:
        return web.json_response(array.volumes())

    async def volume(request: web.Request) -> web.Response:
        return web.json_response(array.volume(request.match_info["name"]))

    async def create(request: web.Request) -> web.Response:
        size = await _field(request, "sizeGiB", int)
        return web.json_response(array.create(request.match_info["name"], size))

    async def attach(request: web.Request) -> web.Response:
        node = await _field(request, "node", str)
        return web.json_response(array.attach(request.match_info["name"], node))

    async def delete(request: web.Request) -> web.Response:
        array.delete(request.match_info["name"])
        return web.json_response({})

    async def fail(request: web.Request) -> web.Response:
        array.fail(request.match_info["node"], Fault(**json.loads(await request.text())))
        return web.json_response({})

    async def mend(request: web.Request) -> web.Response:
        array.fail(request.match_info["node"], None)
        return web.json_response({})

    app = web.Application(middlewares=[_refusals])
    app.add_routes([web.get("/", overview), web.get("/volumes", volumes), web.get("/volumes/{name}", volume)])
    app.add_routes([web.put("/volumes/{name}", create), web.put("/volumes/{name}/attachment", attach)])
    app.add_routes([web.delete("/volumes/{name}", delete)])
    app.add_routes([web.put("/faults/{node}", fail), web.delete("/faults/{node}", mend)])
    return app


async def _field(request: web.Request, name: str, kind: type[Any]) -> Any:
    value = json.loads(await request.text()).get(name)
    if not isinstance(value, kind):
        raise Refused(400, f"{name}={value!r} is not of type {kind.__name__}", permanent=True)
    return value


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        body = {"error": str(refused), "permanent": refused.permanent}
        return web.json_response(body, status=refused.status)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A simulated disk array behind a fabric.")
    parser.add_argument("--port", type=int, default=9700)
    parser.add_argument("--nodes", default="node-1,node-2", help="names of the nodes that the fabric reaches")
    parser.add_argument("--capacity", type=int, default=Options.capacity, help="GiB in all")
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="that attaching takes")
    parser.add_argument("--state", type=Path, default=Path("fabric.json"), help="where volumes are kept")
    given = parser.parse_args()
    options = Options(given.state, tuple(given.nodes.split(",")), given.capacity, given.seconds)
    web.run_app(application(Array(options)), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
