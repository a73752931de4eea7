"""Layer-wise CPU offload of the KV cache: the fifth assignment, whose programs are host code for a device."""
