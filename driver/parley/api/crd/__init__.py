"""Generates the CustomResourceDefinitions from the models: `python -m parley.api.crd DIRECTORY`.

`structural` turns a model into a schema with all that the model checks (`constraints` looks for what it
would not), `definitions` puts names, columns and subresources around it. At run time only the API server in memory
uses this: it drops, fills in and checks by the same schemas.
"""

from parley.api.crd.definitions import KINDS, Kind, definition, manifests
from parley.api.crd.structural import structural_schema
from parley.api.crd.unsupported import UnsupportedSchema

__all__ = ["KINDS", "Kind", "UnsupportedSchema", "definition", "manifests", "structural_schema"]
