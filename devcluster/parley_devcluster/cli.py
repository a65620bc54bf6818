"""`parley cluster`: a real control plane and nodes on this machine, with Parley running in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import parley_devcluster as devcluster
from parley_devcluster import Cluster, kind_parley
from parley_devcluster.parley import CONTROLLER, reads_devices, run_parley, wait_for_devices
from parley_devcluster.second_scheduler import SECOND_SCHEDULER, free_address

app = typer.Typer(
    help="A real Kubernetes on this machine, to try out Parley.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SOURCE = Path(__file__).parents[2]
"""The checkout, for the manifests that are not part of the package."""

EXAMPLES = SOURCE / "examples" / "devices"
"""The nodes' device configurations, unless another folder is given."""

Directory = Annotated[
    Path | None,
    typer.Option(
        envvar="PARLEY_CLUSTER_DIRECTORY",
        help="The folder for the cluster's files. Keep the path short: it contains sockets.",
        show_default=False,
    ),
]
Deploy = Annotated[Path, typer.Option(help="The folder with Parley's manifests.", show_default=False)]
Devices = Annotated[
    Path | None,
    typer.Option(help="A folder with a device configuration <node>.yaml for each node.", show_default=False),
]


@app.command()
def up(
    directory: Directory = None,
    fake_nodes: Annotated[int, typer.Option(min=0, help="Nodes without a kubelet, besides the real ones.")] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Use this cluster instead of creating one.", show_default=False)
    ] = None,
    deploy: Deploy = SOURCE / "deploy",
    devices: Devices = None,
    extender: Annotated[
        bool, typer.Option("--extender", help="Run a second scheduler too, for pods with schedulerName: parley.")
    ] = False,
    kind: Annotated[
        bool, typer.Option("--kind", help="Nodes in containers, made by kind, and Parley in pods.")
    ] = False,
) -> None:
    """Start the cluster, and Parley in it. Prints the path of its kubeconfig; all else goes to stderr."""
    with _failures():
        result = devcluster.up(directory, fake_nodes=fake_nodes, kubeconfig=kubeconfig, containers=kind)
        typer.echo(f"up: {result.how}", err=True)
        if result.cluster is not None:
            _start_again(result.cluster)
            _run_parley(result.cluster, deploy, devices, extender)
        if result.engine is not None:
            folder = devices or EXAMPLES
            kind_parley.install(result.engine, result.kubeconfig, deploy.parent, folder, extender=extender)
    typer.echo(result.kubeconfig)
    for line in _next_steps(result.kubeconfig, parley=bool(result.cluster or result.engine)):
        typer.echo(line, err=True)


@app.command()
def down(directory: Directory = None) -> None:
    """Stop the cluster and remove its files. A cluster given by --kubeconfig is never touched."""
    with _failures():
        there_was_one = devcluster.down(directory)
    typer.echo("the cluster is gone" if there_was_one else "there was no cluster", err=True)


@app.command()
def status(directory: Directory = None) -> None:
    """Show which parts of the cluster run. Exits with 1 if one does not."""
    with _failures():
        cluster = devcluster.Cluster.attach(directory or devcluster.default_directory())
    components = [cluster.component(name) for name in cluster.component_names]
    typer.echo(f"kubeconfig  {cluster.kubeconfig}\nserver      {cluster.server} ({cluster.version})")
    for component in components:
        ended = f"does not run: see {component.log}; `parley cluster up` starts it again"
        typer.echo(f"{component.name}  {'runs' if component.running else ended}")
    raise typer.Exit(0 if all(component.running for component in components) else 1)


def _start_again(cluster: Cluster) -> None:
    """Restart components that have ended since, such as a controller that lost its Lease: nothing else restarts
    them."""
    for component in map(cluster.component, cluster.component_names):
        if not component.running:
            component.start()
            typer.echo(f"{component.name} had ended (see {component.log}) and was started again", err=True)


def _run_parley(cluster: Cluster, deploy: Path, devices: Path | None, extender: bool) -> None:
    files = {node.name: (devices or EXAMPLES) / f"{node.name}.yaml" for node in cluster.nodes}
    if CONTROLLER not in cluster.component_names:
        run_parley(cluster, deploy=deploy, devices=files, extender=free_address() if extender else "")
        wait_for_devices(cluster)
    elif extender and SECOND_SCHEDULER not in cluster.component_names:
        raise ValueError(
            f"the cluster in {cluster.directory} runs without a second scheduler: run `parley cluster down` first"
        )
    elif devices is not None and not all(reads_devices(cluster, node, file) for node, file in files.items()):
        raise ValueError(
            f"the cluster in {cluster.directory} runs with other devices than those of --devices {devices}: "
            "run `parley cluster down` first"
        )


def _next_steps(kubeconfig: Path, *, parley: bool) -> Iterator[str]:
    yield "next:"
    programs = kubeconfig.parent / "bin"
    path = f" PATH={programs}:$PATH" if (programs / "kubectl").exists() else ""
    yield f"  export KUBECONFIG={kubeconfig}{path}"
    if not parley:
        yield f"  kubectl apply -k {SOURCE / 'deploy' / 'default'}"
    yield f"  kubectl apply -f {SOURCE / 'examples' / 'gpu.yaml'}"
    yield "  kubectl get podschedulings,pods"


@contextmanager
def _failures() -> Iterator[None]:
    """Exit with the error's message on stderr."""
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
