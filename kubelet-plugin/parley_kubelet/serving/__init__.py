"""Serves one driver to the kubelet: sockets, registration, the DRA service, ResourceSlices of its devices."""
