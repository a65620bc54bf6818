"""The objects Parley reads and writes: our own kinds, narrow views of built-in ones, names and reasons.

Imports nothing else of Parley. `models` and `meta` hold our kinds (pydantic), `builtin` the built-in kinds as
msgspec structs that decode only what Parley reads, `resources` where each kind lives in the API.
"""
