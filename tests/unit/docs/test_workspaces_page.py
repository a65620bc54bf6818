"""What docs/workspaces.md shows of claims that are made on demand works as shown, in the simulated cluster."""

import re
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.bridge import tekton_pods
from tests.support.pages import ROOT

from parley.api.models import ResourceClaim
from parley.api.resources import CLAIMS
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster
from parley.simulate.manifests import read

Body = dict[str, Any]

NODES = ROOT / "examples" / "pipeline" / "nodes.yaml"
UID = "a4c9ca2f-d397-463d-83be-94a22e79c6a4"


def shown(kind: str) -> list[Body]:
    """The page's objects of that kind, in order."""
    page = (ROOT / "docs" / "workspaces.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [document for document in documents if document.get("kind") == kind]


def pod(claim: str, namespace: str, labels: dict[str, str]) -> Body:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "work"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "task", "namespace": namespace, "labels": labels},
        "spec": {"resourceClaims": [{"name": "work", "resourceClaimName": claim}], "containers": [container]},
    }


def made(folder: Path, *objects: Body) -> ResourceClaim:
    """The one claim that there is, once the pod has its node."""
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))

    async def story() -> ResourceClaim:
        async with SimulatedCluster() as cluster:
            await cluster.apply(read([NODES, folder / "objects.yaml"]))
            assert await cluster.settle()
            assert [record.node for record in cluster.recording.pods] == ["node-1"]
            (claim,) = (await cluster.client.list(CLAIMS)).items
            return claim

    return virtual_time.run(story())


def test_the_template_makes_the_claim_that_the_text_names(tmp_path: Path) -> None:
    class_, template = (shown(kind)[0] for kind in ("ResourceClass", "ResourceClaimTemplate"))
    claim = made(tmp_path, class_, template, pod("build-42", "default", {"example.com/run": "42"}))
    assert claim.metadata.name == "build-42"
    assert claim.spec.parameters == {"size": "2Gi"}


def test_tektons_template_makes_the_run_s_claim_where_its_tasks_have_the_workspace(tmp_path: Path) -> None:
    class_, template, (run,) = shown("ResourceClass")[0], shown("ResourceClaimTemplate")[-1], shown("PipelineRun")
    asked = run["metadata"]["annotations"]["parley.dev/workspace"]
    labels = tekton_pods()[0]["metadata"]["labels"]
    claim = made(tmp_path, class_, template, pod(f"{asked}-{UID}", run["metadata"]["namespace"], labels))
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == (run["kind"], labels["tekton.dev/pipelineRun"], UID)
    (workspace,) = run["spec"]["workspaces"]
    assert workspace["emptyDir"] == {}
    assert claim.spec.parameters == {"size": "5Gi", "mountPath": f"/workspace/{workspace['name']}"}


def test_the_claim_that_reserves_room_does_so_as_its_class_allows(tmp_path: Path) -> None:
    (class_,) = (one for one in shown("ResourceClass") if "maxReserve" in one.get("parameters", {}))
    (claim,) = (one for one in shown("ResourceClaim") if "reserve" in one["spec"]["parameters"])
    allocation = made(tmp_path, class_, claim, pod("nightly", "default", {})).status.allocation
    assert allocation is not None
    assert allocation.reserve is not None
    found = {**allocation.reserve.amounts, "pods": allocation.reserve.pods}
    assert found == claim["spec"]["parameters"]["reserve"]


def test_the_template_of_a_view_shows_the_claim_that_the_page_makes(tmp_path: Path) -> None:
    (template,) = (one for one in shown("ResourceClaimTemplate") if one["metadata"]["name"] == "results")
    writer, reader = pod("build-42", "default", {}), pod("", "default", {})
    reader["metadata"]["name"] = "reader"
    reader["spec"]["resourceClaims"] = [{"name": "work", "resourceClaimTemplateName": "results"}]
    objects = (shown("ResourceClass")[0], shown("ResourceClaim")[0], template, reader, writer)
    assert template["spec"]["spec"]["parameters"]["source"] == {
        "claim": shown("ResourceClaim")[0]["metadata"]["name"]
    }
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))

    async def story() -> None:
        async with SimulatedCluster() as cluster:
            await cluster.apply(read([NODES, tmp_path / "objects.yaml"]))
            assert await cluster.settle()
            assert [record.node for record in cluster.recording.pods] == ["node-1", "node-1"]

    virtual_time.run(story())
