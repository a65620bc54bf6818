"""One driver as the kubelet meets it: sockets, registration, the DRA service, ResourceSlices of its devices."""
