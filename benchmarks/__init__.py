"""How fast Parley is on a real control plane: `python -m benchmarks`. Measures; asserts nothing about speed."""
