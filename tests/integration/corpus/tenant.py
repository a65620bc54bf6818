"""The hostile user: sends what the corpus says, byte for byte, with the rights of the stock role `edit`."""

import asyncio
import base64
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
from tests.cluster.raw import raw
from tests.integration.corpus.corpus import CLAIMS, PODS, Corpus, Known, Request
from yarl import URL

from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

_NAME = re.compile(rb'"name": ?"([^"]+)"')
_LOOK_EVERY = 200
"""After so many requests the tenant looks at what its namespace has by now."""

ACCOUNT, PARLEY = "tenant", "parley-controller"
CUT = 0
"""Instead of a status where no answer can be read: over some bodies the API server ends the connection, and some
have it warn in more headers than a client takes."""


def make_tenant(cluster: Cluster, namespace: str, *, pods: int) -> Path:
    """A namespace with a user of the role `edit`, and a quota as administrators set one; its kubeconfig.

    Parley may read its ConfigMaps.
    """
    api = raw(cluster)
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(pods)}}}
    api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    place = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    api.post(f"{place}/roles", {"metadata": {"name": PARLEY}, "rules": [rule]})
    reads = {
        "metadata": {"name": PARLEY},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PARLEY},
        "subjects": [{"kind": "ServiceAccount", "name": PARLEY, "namespace": NAMESPACE}],
    }
    api.post(f"{place}/rolebindings", reads)
    return cluster.kubeconfig_for_service_account(namespace, ACCOUNT)


class Tenant:
    """Sends requests; an async context manager."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self.known = Known()
        self.answers: Counter[int] = Counter()
        """How many requests were answered with each HTTP status."""
        self._server, self._token, self._tls = _access(kubeconfig)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=16),
            headers={"Authorization": f"Bearer {self._token}"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def play(self, corpus: Corpus, count: int, *, at_once: int = 8) -> None:
        """Send so many requests of the corpus."""
        left = iter(range(count))

        async def send() -> None:
            for number in left:
                if number % _LOOK_EVERY == 0:
                    await self._look()
                await self._play_one(corpus.next())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(send())

    async def _play_one(self, request: Request) -> None:
        try:
            status, content = await self.send(request)
        except aiohttp.ClientError:
            status, content = CUT, b""
        self.answers[status] += 1
        if request.method == "POST" and status == 201 and (found := _NAME.search(content)):
            self.known.objects.append(f"{request.path}/{found[1].decode(errors='replace')}")
        if request.method == "DELETE" and status in (200, 404):
            path = request.path.partition("?")[0]
            self.known.objects = [other for other in self.known.objects if other != path]

    async def send(self, request: Request) -> tuple[int, bytes]:
        """The status and the content of the answer; 429 is waited out."""
        url = URL(f"{self._server}{request.path}", encoded=True)
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        while True:
            async with self._session.request(request.method, url, data=request.body, headers=headers) as answer:
                content = await answer.read()
                if answer.status != 429:
                    return answer.status, content
            await asyncio.sleep(0.2)

    async def _look(self) -> None:
        """As metadata only: a client that decodes what it has stored would fail over it."""
        claims = await self._metadata(f"{CLAIMS}/namespaces/{self.namespace}/resourceclaims")
        pods = await self._metadata(f"{PODS}/namespaces/{self.namespace}/pods")
        self.known.claims = [meta["name"] for meta in claims]
        self.known.pods = [(meta["name"], meta["uid"]) for meta in pods]

    async def _metadata(self, path: str) -> list[dict[str, Any]]:
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        url = URL(f"{self._server}{path}", encoded=True)
        async with self._session.get(url, headers={"Accept": accept}) as answer:
            listing = await answer.json()
        return [item["metadata"] for item in listing["items"] or ()]


def _access(kubeconfig: Path) -> tuple[str, str, ssl.SSLContext]:
    """Server, token and trust, out of a kubeconfig that `Cluster` wrote."""
    document = orjson.loads(kubeconfig.read_bytes())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], user["token"], ssl.create_default_context(cadata=authority)
