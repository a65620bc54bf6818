"""`python -m parley`: the same as the command `parley`."""

from parley.cli.main import app

app()
