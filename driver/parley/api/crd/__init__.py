"""Generates the CustomResourceDefinitions from the models: `python -m parley.api.crd DIRECTORY`.

`structural` turns a model into a schema, `definitions` puts names, columns and subresources around it. Nothing
else of Parley uses this at run time.
"""

from parley.api.crd.definitions import KINDS, Kind, definition, manifests
from parley.api.crd.structural import UnsupportedSchema, structural_schema

__all__ = ["KINDS", "Kind", "UnsupportedSchema", "definition", "manifests", "structural_schema"]
