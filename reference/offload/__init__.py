"""The assignment `offload`: a KV cache in CPU memory, loaded layer by layer.

`block_manager` has Part 1, `engine` Part 2, `runner` Part 3, each written for a device that is given to it. `device`
says what a device can do, and has one that only notes its calls.
"""
