"""Apache Airflow's runs with Parley and without, side by side, on a cluster with two real nodes.

    python -m benchmarks.clients.airflow                       # everything: about half an hour on 2 cores
    python -m benchmarks.clients.airflow --runs 3 --disturbance none
    python -m benchmarks.clients.airflow --runs 0 --disturbance full

One command does it all: it installs Airflow and its Kubernetes provider from PyPI into an environment of its own
(`installed`, versions in `constraints.txt`), starts the development cluster with two real nodes, with Parley's
workspaces and local-path-provisioner on them (`stage`, `provisioner`), a git repository (`source`), and Airflow
with the DAGs of `examples/airflow`. Then runs of both ways take turns. What they create is counted over all API
resources (`sightings`); what they take is measured from the trigger until nothing is left of them (`runs`). Then
each disturbance is done to each way (`disturbances`).

Both nodes are one machine, which also carries the control plane and Airflow: compare the ways, not the seconds.
Airflow looks at a pod every five seconds, so that a task takes five, ten or fifteen seconds whatever it does.
"""
