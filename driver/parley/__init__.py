"""Parley: negotiated resource allocation for Kubernetes (control plane and driver SDK)."""
