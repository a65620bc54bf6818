"""The API server is slow, refuses, loses connections, or goes and comes back while pods arrive and leave."""

import asyncio
import base64
import json
import random
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.load import Bindings, assert_each_has_its_own, mixed
from tests.cluster.namespace import Namespace
from tests.cluster.proxy import FAIR, Fate, Proxy
from tests.cluster.replicas import Replicas
from tests.integration.failover.conftest import ONE

from parley_devcluster import Cluster
from parley_devcluster.control_plane import API_SERVER, ETCD

pytestmark = pytest.mark.cluster


def unlucky(chance: random.Random) -> Callable[[str, str], Fate]:
    """Every fourth request meets something, and no watch lives for long. After 4 s a write is given up."""

    def judge(_method: str, path: str) -> Fate:
        if "watch=true" in path:
            return Fate(lives=chance.uniform(0.2, 4))
        if chance.random() > 0.25:
            return FAIR
        late = chance.uniform(0.2, 6)
        kinds = (
            Fate(arrives_after=late),
            Fate(answered_after=late),
            Fate(cut_before=True),
            Fate(cut_after=True),
            Fate(arrives_after=late, cut_after=True),
            Fate(refused=429),
            Fate(refused=503),
        )
        return chance.choice(kinds)

    return judge


async def test_requests_that_are_late_lost_refused_or_carried_out_unheard(
    team: Namespace, bindings: Bindings, controllers: Replicas, proxy: Proxy
) -> None:
    controllers.lease_seconds = None
    await controllers.lead(proxy.kubeconfig)
    await controllers.start(proxy.kubeconfig)
    proxy.judge = unlucky(random.Random(7))
    load = mixed(120, ONE, every=0.12)

    await load.arrive(team)
    proxy.judge = lambda _method, _path: FAIR
    await bindings.all_of(load.staying)
    await assert_each_has_its_own(team, load.staying)


def compact(cluster: Cluster) -> None:
    """Have etcd forget all states but the present one, which nobody has seen."""
    folder = cluster.directory / "pki" / ETCD
    address = f"https://127.0.0.1:{port_of_etcd(cluster)}/v3/kv"
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    tls.load_cert_chain(folder / f"{ETCD}.crt", folder / f"{ETCD}.key")

    def post(what: str, body: dict[str, str]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{address}/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, context=tls) as answer:
            found: dict[str, dict[str, str]] = json.load(answer)
            return found

    # Without a change of its own the last thing that happened may be what a watch told last.
    revision = post("put", {"key": base64.b64encode(b"/compacted").decode()})["header"]["revision"]
    post("compaction", {"revision": revision})


def port_of_etcd(cluster: Cluster) -> str:
    words = Path(f"/proc/{cluster.component(ETCD).pid}/cmdline").read_text().split("\0")
    (flag,) = (word for word in words if word.startswith("--listen-client-urls="))
    return flag.rpartition(":")[2]


async def test_a_control_plane_that_ends_dies_and_loses_its_history_while_pods_arrive(
    cluster: Cluster, team: Namespace, bindings: Bindings, controllers: Replicas
) -> None:
    server, store = cluster.component(API_SERVER), cluster.component(ETCD)
    controllers.lease_seconds = None
    await controllers.lead()
    await controllers.start()
    load = mixed(150, ONE, every=0.08)
    async with load.arriving(team):
        await bindings.count(30)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)

        await bindings.count(60)
        await asyncio.to_thread(store.kill)
        await asyncio.to_thread(store.start)

        await bindings.count(90)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(compact, cluster)
        await asyncio.to_thread(server.start)
    await bindings.all_of(load.staying)
    await assert_each_has_its_own(team, load.staying)
    assert bindings.interruptions["Expired"] > 0, "no watch met the loss of history"
