"""Part 3: the model, layer by layer, with its keys and values in CPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.offload.block_manager import HybridKVCacheManager, SeqId
from reference.offload.engine import OffloadEngine
from reference.oracle import Refused


class ModelRunner:
    """Runs one sequence at a time."""

    def __init__(self, dev: Any, cfg: Any) -> None:
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.stream = self.engine.compute_stream
        self.running: list[SeqId] = []  # the sequence that runs, or none
        self.length = 0

    def run_layerwise_offload_prefill(self, seq_id: SeqId, token_ids: Sequence[int]) -> None:
        """Run the model on the prompt of a new sequence."""
        if self.running:
            raise Refused("RuntimeError", "Part 3/prefill-refused")
        if not 1 <= len(token_ids) <= self.cfg.max_seq_len:
            raise Refused("ValueError", "Part 3/prefill-refused")
        table = self.manager.allocate_cpu_only(seq_id, len(token_ids))
        self.running, self.length = [seq_id], len(token_ids)
        x = self._embedded(token_ids)
        for layer in range(self.cfg.num_layers):
            q, k, v = self._projected(x, layer, 0)
            a = self._new(x.rows, self.cfg.q_width)
            self._launch("attention", q=q, k=k, v=v, out=a, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, table, len(token_ids))
            self._free(q, k, v)
            self._rest_of_layer(x, a, layer)
        self.manager.mark_offloaded(seq_id, len(token_ids))
        self._finish_with_logits(x)

    def run_layerwise_offload_decode(self, seq_id: SeqId, token_id: int) -> None:
        """Run the model on one more token of the running sequence."""
        self._check_running(seq_id)
        if self.length == self.cfg.max_seq_len:
            raise Refused("ValueError", "Part 3/decode-refused")
        if not self.manager.can_append(seq_id):
            raise Refused("RuntimeError", "Part 3/decode-refused")
        position, self.length = self.length, self.length + 1
        self.manager.may_append(seq_id)
        for layer in range(min(self.cfg.num_kv_buffers, self.cfg.num_layers)):
            self._load(seq_id, layer)
        x = self._embedded([token_id])
        for layer in range(self.cfg.num_layers):
            self._decode_layer(seq_id, x, layer, position)
        if position % self.cfg.block_size == self.cfg.block_size - 1:
            last = self.manager.get_all_cpu_blocks(seq_id)[-1]
            self.engine.offload_decode_buffer(last, self.manager.get_decode_start_pos(seq_id))
            self.manager.mark_offloaded(seq_id, self.length)
        self._finish_with_logits(x)

    def finish(self, seq_id: SeqId) -> None:
        """Forget the running sequence, and free its blocks."""
        self._check_running(seq_id)
        self.manager.deallocate(seq_id)
        self.running = []

    def _check_running(self, seq_id: SeqId) -> None:
        if self.running != [seq_id]:
            raise Refused("KeyError", "Part 3/not-running")

    def _load(self, seq_id: SeqId, layer: int) -> None:
        """Load the offloaded tokens of a layer into the layer's buffer of the ring."""
        table, tokens = self.manager.get_prefilled_cpu_blocks(seq_id), self.manager.get_prefill_len(seq_id)
        self.engine.load_layer_kv_to_buffer(layer % self.cfg.num_kv_buffers, layer, table, tokens)

    def _decode_layer(self, seq_id: SeqId, x: Any, layer: int, position: int) -> None:
        pos, buffer = position % self.cfg.block_size, layer % self.cfg.num_kv_buffers
        q, k, v = self._projected(x, layer, position)
        self.engine.wait_buffer_load(buffer)
        old_k, old_v = self.engine.get_buffer_kv(buffer, self.manager.get_prefill_len(seq_id))
        new_k, new_v = self.engine.get_decode_kv(layer, self.manager.get_decode_start_pos(seq_id), pos)
        a = self._new(1, self.cfg.q_width)
        self._launch("attention", q=q, k=[old_k, new_k, k], v=[old_v, new_v, v], out=a, causal=False)
        self.engine.store_decode_kv(layer, pos, k, v)
        self.engine.record_buffer_compute_done(buffer)
        if layer + self.cfg.num_kv_buffers < self.cfg.num_layers:
            self._load(seq_id, layer + self.cfg.num_kv_buffers)
        self._free(q, k, v)
        self._rest_of_layer(x, a, layer)

    # The model

    def _embedded(self, tokens: Sequence[int]) -> Any:
        x = self._new(len(tokens), self.cfg.hidden)
        self._launch("embed", tokens=list(tokens), out=x)
        return x

    def _projected(self, x: Any, layer: int, position: int) -> tuple[Any, Any, Any]:
        """Return queries, keys and values of the rows of `x`; queries and keys are rotated."""
        h = self._new(x.rows, self.cfg.hidden)
        q, k, v = (self._new(x.rows, width) for width in (self.cfg.q_width, self.cfg.kv_width, self.cfg.kv_width))
        self._launch("rms_norm", x=x, out=h, layer=layer, which="attention")
        for kernel, out in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
            self._launch(kernel, x=h, out=out, layer=layer)
        self._launch("rotary", x=q, pos=position)
        self._launch("rotary", x=k, pos=position)
        self._free(h)
        return q, k, v

    def _rest_of_layer(self, x: Any, a: Any, layer: int) -> None:
        """Add the projected attention `a` to `x`, then the output of the MLP. Free `a`."""
        h = self._new(x.rows, self.cfg.hidden)
        self._launch("o_proj", x=a, out=h, layer=layer)
        self._launch("add", x=x, y=h, out=x)
        self._launch("rms_norm", x=x, out=h, layer=layer, which="mlp")
        self._launch("mlp", x=h, out=h, layer=layer)
        self._launch("add", x=x, y=h, out=x)
        self._free(h, a)

    def _finish_with_logits(self, x: Any) -> None:
        """Copy the logits of the last row to the host, and wait for them."""
        out = self._new(1, self.cfg.vocab)
        self._launch("logits", x=(x, x.rows - 1, x.rows), out=out)
        self.dev.copy(self.logits, out, self.stream)
        self._free(x, out)
        self.dev.sync(self.stream)

    def _new(self, rows: int, width: int) -> Any:
        return self.dev.alloc(rows, width, self.stream)

    def _launch(self, kernel: str, **args: Any) -> None:
        self.dev.launch(kernel, self.stream, **args)

    def _free(self, *bufs: Any) -> None:
        for buf in bufs:
            self.dev.free(buf)
