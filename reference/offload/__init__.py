"""The assignment `offload`: a KV cache in CPU memory, loaded layer by layer.

`block_manager` has Part 1, `engine` Part 2, `runner` Part 3. The device (Part 0)
and the sizes of the model are given to them.
"""
