"""The fifth assignment, layer-wise CPU offload of the KV cache: students write host code that drives a device."""
