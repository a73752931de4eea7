"""The device for which you write host code: its calls check their arguments and append to a log, nothing else happens.

`Device(Config(...))` makes one, for tests of your own. What a call means is in Part 0 of the handout.
"""

import sys

MOST_VALUES = 1 << 19
"""The values for which the device has room at a time, and the host's pinned memory as well (4 MiB each)."""


class DeviceError(RuntimeError):
    """A call has a wrong argument; nothing was logged."""


class Config:
    """The sizes of a model and of its caches."""

    def __init__(
        self,
        num_layers,
        num_cpu_blocks,
        block_size,
        num_kv_buffers,
        max_seq_len,
        hidden=12,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        vocab=23,
    ):
        self.num_layers = num_layers
        self.num_cpu_blocks = num_cpu_blocks
        self.block_size = block_size
        self.num_kv_buffers = num_kv_buffers
        self.max_seq_len = max_seq_len
        self.hidden = hidden
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.q_width = num_heads * head_dim
        self.kv_width = num_kv_heads * head_dim
        self.vocab = vocab


class Buf:
    """A table of float64 in device memory, or in pinned memory of the host."""

    def __init__(self, rows, width, pinned):
        self.rows = rows
        self.width = width
        self.pinned = pinned

    def __repr__(self):
        return f"<Buf of {self.rows} x {self.width}{' pinned' * self.pinned}>"


class Stream:
    """A queue of work."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<Stream {self.name}>"


class Event:
    """A point in a stream."""


_KERNELS = {
    "embed": ("tokens", "out"),
    "rms_norm": ("x", "out", "layer", "which"),
    "q_proj": ("x", "out", "layer"),
    "k_proj": ("x", "out", "layer"),
    "v_proj": ("x", "out", "layer"),
    "rotary": ("x", "pos"),
    "attention": ("q", "k", "v", "out", "causal"),
    "o_proj": ("x", "out", "layer"),
    "mlp": ("x", "out", "layer"),
    "add": ("x", "y", "out"),
    "logits": ("x", "out"),
}


class Device:
    """Checks calls and logs them. Each entry is [call, ids, rows, line], with the line of offload.py that called."""

    DeviceError = DeviceError

    def __init__(self, cfg):
        self._cfg = cfg
        self._log = []
        self._numbers = {}  # of handles, by identity
        self._streams, self._events, self._buffers = [], [], []
        self._sizes = []  # of each buffer [rows, width, pinned], None once it is freed
        self._left = {False: MOST_VALUES, True: MOST_VALUES}

    # Handles

    def stream(self, name=""):
        """Return a new stream."""
        if type(name) is not str or len(name) > 80:
            raise DeviceError("the name of a stream is a text of at most 80 characters")
        stream = Stream(name)
        self._enter("stream", [self._number(stream, self._streams), name], [])
        return stream

    def event(self):
        """Return a new event, which counts as complete until it is recorded."""
        event = Event()
        self._enter("event", [self._number(event, self._events)], [])
        return event

    def alloc(self, rows, width, stream):
        """Return device memory that belongs to a stream."""
        owner = self._stream(stream)
        buf = self._new(rows, width, pinned=False)
        self._enter("alloc", [self._numbers[id(buf)], owner], [rows, width])
        return buf

    def alloc_pinned(self, rows, width):
        """Return memory of the host."""
        buf = self._new(rows, width, pinned=True)
        self._enter("alloc_pinned", [self._numbers[id(buf)]], [rows, width])
        return buf

    def free(self, buf):
        """Give device memory back to its stream."""
        number = self._device_memory(buf)
        rows, width, pinned = self._sizes[number]
        self._sizes[number] = None
        self._left[pinned] += rows * width
        self._enter("free", [number], [])

    # Work

    def record_stream(self, buf, stream):
        """Say that a stream uses a buffer, too."""
        self._enter("record_stream", [self._device_memory(buf), self._stream(stream)], [])

    def copy(self, dst, src, stream):
        """Copy a range."""
        to, of, on = self._range(dst), self._range(src), self._stream(stream)
        if to[2] - to[1] != of[2] - of[1] or self._width(to) != self._width(of):
            raise DeviceError("the ranges of a copy have different sizes")
        if self._sizes[to[0]][2] and self._sizes[of[0]][2]:
            raise DeviceError("a copy from pinned memory to pinned memory")
        if to[0] == of[0] and max(to[1], of[1]) < min(to[2], of[2]):
            raise DeviceError("the ranges of a copy overlap")
        self._enter("copy", [to[0], of[0], on], [*to[1:], *of[1:]])

    def launch(self, kernel, stream, **args):
        """Run a kernel."""
        if type(kernel) is not str or kernel not in _KERNELS:
            raise DeviceError(f"there is no kernel {kernel!r}")
        on = self._stream(stream)
        if set(args) != set(_KERNELS[kernel]):
            raise DeviceError(f"{kernel} takes {', '.join(_KERNELS[kernel])}")
        shown = {name: self._argument(name, value) for name, value in args.items()}
        self._check_sizes(kernel, shown)
        self._enter(kernel, [on], shown)

    def record(self, event, stream):
        """Let an event stand for all work of a stream so far."""
        self._enter("record", [self._event(event), self._stream(stream)], [])

    def wait(self, stream, event):
        """Let later work of a stream run after what an event stands for now."""
        self._enter("wait", [self._stream(stream), self._event(event)], [])

    def sync(self, x=None):
        """Let the host wait for a stream, an event, or everything."""
        if x is None:
            self._enter("sync", [], [])
        elif type(x) is Stream:
            self._enter("sync", ["stream", self._stream(x)], [])
        else:
            self._enter("sync", ["event", self._event(x)], [])

    # How arguments are checked

    def _number(self, handle, handles):
        self._numbers[id(handle)] = len(handles)
        handles.append(handle)
        return len(handles) - 1

    def _new(self, rows, width, *, pinned):
        if type(rows) is not int or type(width) is not int or rows < 0 or width < 1:
            raise DeviceError("rows and width are ints, rows at least 0, width at least 1")
        if rows * width > self._left[pinned]:
            raise DeviceError(f"out of {'pinned' if pinned else 'device'} memory")
        self._left[pinned] -= rows * width
        buf = Buf(rows, width, pinned)
        self._sizes.append([rows, width, pinned])
        self._number(buf, self._buffers)
        return buf

    def _stream(self, stream):
        if type(stream) is not Stream or id(stream) not in self._numbers:
            raise DeviceError(f"{stream!r} is no stream of this device")
        return self._numbers[id(stream)]

    def _event(self, event):
        if type(event) is not Event or id(event) not in self._numbers:
            raise DeviceError(f"{event!r} is no event of this device")
        return self._numbers[id(event)]

    def _buffer(self, buf):
        if type(buf) is not Buf or id(buf) not in self._numbers:
            raise DeviceError(f"{buf!r} is no buffer of this device")
        number = self._numbers[id(buf)]
        if self._sizes[number] is None:
            raise DeviceError(f"{buf!r} was freed")
        return number

    def _device_memory(self, buf):
        number = self._buffer(buf)
        if self._sizes[number][2]:
            raise DeviceError("pinned memory has no stream and is never freed")
        return number

    def _range(self, value):
        if type(value) is not tuple:
            number = self._buffer(value)
            return [number, 0, self._sizes[number][0]]
        if len(value) != 3:
            raise DeviceError(f"{value!r} is no range: a range is (buf, lo, hi)")
        buf, lo, hi = value
        number = self._buffer(buf)
        if type(lo) is not int or type(hi) is not int or not 0 <= lo <= hi <= self._sizes[number][0]:
            raise DeviceError(f"rows {lo!r} to {hi!r} are no range of {buf!r}")
        return [number, lo, hi]

    def _on_device(self, value):
        span = self._range(value)
        if self._sizes[span[0]][2]:
            raise DeviceError("a kernel works on device memory only")
        return span

    def _argument(self, name, value):
        """An argument of a kernel as the log has it."""
        if name in ("x", "y", "q", "out"):
            return self._on_device(value)
        if name in ("k", "v"):
            return [self._on_device(part) for part in (value if type(value) is list else [value])]
        if name == "tokens":
            tokens = list(value) if type(value) is list else None
            if tokens is None or not all(type(token) is int and 0 <= token < self._cfg.vocab for token in tokens):
                raise DeviceError("tokens are a list of ints of the vocabulary")
            return tokens
        if name == "layer" and (type(value) is not int or not 0 <= value < self._cfg.num_layers):
            raise DeviceError(f"there is no layer {value!r}")
        if name == "pos" and (type(value) is not int or not 0 <= value < 1 << 30):
            raise DeviceError(f"{value!r} is no position")
        if name == "which" and (type(value) is not str or value not in ("attention", "mlp")):
            raise DeviceError('which is "attention" or "mlp"')
        if name == "causal" and type(value) is not bool:
            raise DeviceError("causal is True or False")
        return value

    def _width(self, span):
        return self._sizes[span[0]][1]

    def _check_sizes(self, kernel, args):
        """Raise `DeviceError` unless the ranges have the sizes that the kernel wants."""
        cfg = self._cfg
        if kernel == "embed":
            rows = len(args["tokens"])
        else:
            first = args["q"] if kernel == "attention" else args["x"]
            rows = first[2] - first[1]
        hidden, wide, narrow = (cfg.hidden,), (cfg.q_width,), (cfg.kv_width,)
        widths = {
            "embed": {"out": hidden},
            "rms_norm": {"x": hidden, "out": hidden},
            "q_proj": {"x": hidden, "out": wide},
            "k_proj": {"x": hidden, "out": narrow},
            "v_proj": {"x": hidden, "out": narrow},
            "rotary": {"x": wide + narrow},
            "attention": {"q": wide, "out": wide},
            "o_proj": {"x": wide, "out": hidden},
            "mlp": {"x": hidden, "out": hidden},
            "add": dict.fromkeys(("x", "y", "out"), (self._width(args["x"]),)) if kernel == "add" else {},
            "logits": {"x": hidden, "out": (cfg.vocab,)},
        }[kernel]
        for name, allowed in widths.items():
            span = args[name]
            if span[2] - span[1] != rows or self._width(span) not in allowed:
                raise DeviceError(f"{kernel}: {name} has the wrong size")
        if kernel == "logits" and rows != 1:
            raise DeviceError("logits: x is one row")
        if kernel == "attention":
            keys = [sum(hi - lo for _, lo, hi in args[name]) for name in "kv"]
            if any(self._width(span) != cfg.kv_width for name in "kv" for span in args[name]):
                raise DeviceError("attention: k or v has the wrong width")
            if keys[0] != keys[1] or keys[0] < 1:
                raise DeviceError("attention: k and v have equally many rows, at least one")

    def _enter(self, call, ids, rows):
        frame = sys._getframe(2)
        while frame is not None and not frame.f_code.co_filename.endswith("offload.py"):
            frame = frame.f_back
        self._log.append([call, ids, rows, frame.f_lineno if frame is not None else 0])
