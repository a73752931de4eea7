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
        self, num_layers, num_cpu_blocks, block_size, num_kv_buffers, max_seq_len,
        hidden=12, num_heads=4, num_kv_heads=2, head_dim=4, vocab=23,
    ):
        self.num_layers, self.hidden, self.vocab = num_layers, hidden, vocab
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q_width, self.kv_width = num_heads * head_dim, num_kv_heads * head_dim
        self.num_cpu_blocks, self.block_size = num_cpu_blocks, block_size
        self.num_kv_buffers, self.max_seq_len = num_kv_buffers, max_seq_len


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


KERNELS = {
    "embed": {"tokens": "", "out": "hidden"},
    "rms_norm": {"x": "hidden", "out": "hidden", "layer": "", "which": ""},
    "q_proj": {"x": "hidden", "out": "q", "layer": ""},
    "k_proj": {"x": "hidden", "out": "kv", "layer": ""},
    "v_proj": {"x": "hidden", "out": "kv", "layer": ""},
    "rotary": {"x": "q or kv", "pos": ""},
    "attention": {"q": "q", "k": "", "v": "", "out": "q", "causal": ""},
    "o_proj": {"x": "q", "out": "hidden", "layer": ""},
    "mlp": {"x": "hidden", "out": "hidden", "layer": ""},
    "add": {"x": "of x", "y": "of x", "out": "of x"},
    "logits": {"x": "hidden", "out": "vocab"},
}
"""The arguments of each kernel; of a range that has as many rows as the kernel computes the name of its width."""

_IDS = {
    "stream": ("next stream", "name"),
    "event": ("next event",),
    "alloc": ("next buffer", "stream"),
    "alloc_pinned": ("next buffer",),
    "free": ("device memory",),
    "record_stream": ("device memory", "stream"),
    "copy": ("buffer", "buffer", "stream"),
    "record": ("event", "stream"),
    "wait": ("stream", "event"),
}
"""What the ids of each call are. Those of a sync are nothing, or a word and the stream or event that it names."""


class Validator:
    """Checks calls as a log has them: handles are numbers, counted from 0, and ranges are [buffer, lo, hi]."""

    def __init__(self, cfg, most_values=MOST_VALUES, kernels=KERNELS):
        self.cfg = cfg
        self.kernels = kernels
        self.counts = {"stream": 0, "event": 0}
        self.buffers = []  # handles that only say rows, width and pinned
        self.freed = set()
        self.left = {False: most_values, True: most_values}  # values of device memory, of pinned memory
        self._widths = {
            "hidden": (cfg.hidden,),
            "q": (cfg.q_width,),
            "kv": (cfg.kv_width,),
            "q or kv": (cfg.q_width, cfg.kv_width),
            "vocab": (cfg.vocab,),
        }

    def take(self, call, ids, rows):
        """Check a call and count what it makes or frees. Raises `DeviceError`, and has changed nothing then."""
        if call in self.kernels:
            self._check_ids(("stream",), ids)
            self._check_kernel(call, rows)
        elif call == "sync":
            named = type(ids) is list and len(ids) == 2 and ids[0] in ("stream", "event")
            self._check_ids(("word", ids[0]) if named else (), ids)
            _check_length(rows, 0)
        elif call in _IDS:
            self._check_ids(_IDS[call], ids)
            _check_length(rows, {"alloc": 2, "alloc_pinned": 2, "copy": 4}.get(call, 0))
            if call == "copy":
                self._check_copy([ids[0], *rows[:2]], [ids[1], *rows[2:]])
            elif call in ("alloc", "alloc_pinned"):
                self._alloc(*rows, pinned=call == "alloc_pinned")
            elif call in ("stream", "event"):
                self.counts[call] += 1
            elif call == "free":
                self.left[False] += self.buffers[ids[0]].rows * self.buffers[ids[0]].width
                self.freed.add(ids[0])
        else:
            raise DeviceError(f"there is no call {call!r} of the device")

    def check_on_device(self, span):
        """Raise `DeviceError` unless this is a range of device memory."""
        self._check_span(span)
        if self.buffers[span[0]].pinned:
            raise DeviceError("a kernel works on device memory only")

    def _check_ids(self, kinds, ids):
        _check_length(ids, len(kinds))
        for kind, number in zip(kinds, ids):
            self._check_id(kind, number)

    def _check_id(self, kind, number):
        if kind == "name":
            if type(number) is not str or len(number) > 80:
                raise DeviceError("the name of a stream is a text of at most 80 characters")
        elif kind in ("stream", "event"):
            if not _is_number(number, 0, self.counts[kind]):
                raise DeviceError(f"there is no {kind} {number!r}")
        elif kind in ("buffer", "device memory"):
            if not _is_number(number, 0, len(self.buffers)):
                raise DeviceError(f"there is no buffer {number!r}")
            if number in self.freed:
                raise DeviceError(f"{self.buffers[number]!r} was freed")
            if kind == "device memory" and self.buffers[number].pinned:
                raise DeviceError("pinned memory has no stream and is never freed")
        elif kind != "word":
            count = len(self.buffers) if kind == "next buffer" else self.counts[kind[len("next ") :]]
            if not _is_number(number, count, count + 1):
                raise DeviceError(f"{number!r} is not the {kind}")

    def _alloc(self, rows, width, *, pinned):
        if type(rows) is not int or type(width) is not int or rows < 0 or width < 1:
            raise DeviceError("rows and width are ints, rows at least 0, width at least 1")
        if rows * width > self.left[pinned]:
            raise DeviceError(f"out of {'pinned' if pinned else 'device'} memory")
        self.left[pinned] -= rows * width
        self.buffers.append(Buf(rows, width, pinned))

    def _check_copy(self, to, of):
        self._check_span(to)
        self._check_span(of)
        if to[2] - to[1] != of[2] - of[1] or self._width(to) != self._width(of):
            raise DeviceError("the ranges of a copy have different sizes")
        if self.buffers[to[0]].pinned and self.buffers[of[0]].pinned:
            raise DeviceError("a copy from pinned memory to pinned memory")
        if to[0] == of[0] and max(to[1], of[1]) < min(to[2], of[2]):
            raise DeviceError("the ranges of a copy overlap")

    def _check_span(self, span):
        _check_length(span, 3)
        number, lo, hi = span
        self._check_id("buffer", number)
        buf = self.buffers[number]
        if type(lo) is not int or type(hi) is not int or not 0 <= lo <= hi <= buf.rows:
            raise DeviceError(f"rows {lo!r} to {hi!r} are no range of {buf!r}")

    def _width(self, span):
        return self.buffers[span[0]].width

    def _check_kernel(self, kernel, args):
        wanted = self.kernels[kernel]
        if type(args) is not dict or args.keys() != wanted.keys():
            raise DeviceError(f"{kernel} takes {', '.join(wanted)}")
        for name, value in args.items():
            self._check_argument(name, value)
        rows = len(args["tokens"]) if kernel == "embed" else _height(args.get("q") or args.get("x") or args.get("out"))
        for name, width in wanted.items():
            if width:
                allowed = (self._width(args["x"]),) if width == "of x" else self._widths[width]
                if _height(args[name]) != rows or self._width(args[name]) not in allowed:
                    raise DeviceError(f"{kernel}: {name} has the wrong size")
        if kernel == "logits" and rows != 1:
            raise DeviceError("logits: x is one row")
        if kernel == "attention":
            if any(self._width(span) != self.cfg.kv_width for name in "kv" for span in args[name]):
                raise DeviceError("attention: k or v has the wrong width")
            keys, values = (sum(map(_height, args[name])) for name in "kv")
            if keys != values or keys < 1:
                raise DeviceError("attention: k and v have equally many rows, at least one")

    def _check_argument(self, name, value):
        cfg = self.cfg
        if name in ("x", "y", "q", "out"):
            self.check_on_device(value)
        elif name in ("k", "v"):
            if type(value) is not list:
                raise DeviceError(f"{name} is a list of ranges")
            for part in value:
                self.check_on_device(part)
        elif name == "tokens":
            if type(value) is not list or not all(_is_number(token, 0, cfg.vocab) for token in value):
                raise DeviceError("tokens are a list of ints of the vocabulary")
        elif name == "which":
            if type(value) is not str or value not in ("attention", "mlp"):
                raise DeviceError('which is "attention" or "mlp"')
        elif name == "causal":
            if type(value) is not bool:
                raise DeviceError("causal is True or False")
        elif not _is_number(value, 0, cfg.num_layers if name == "layer" else 1 << 30):
            raise DeviceError(f"there is no {'layer' if name == 'layer' else 'position'} {value!r}")


def _check_length(value, count):
    if type(value) is not list or len(value) != count:
        raise DeviceError("the call has other arguments")


def _is_number(value, least, end):
    return type(value) is int and least <= value < end


def _height(span):
    return 0 if span is None else span[2] - span[1]


class Device:
    """Checks calls and logs them. Each entry is [call, ids, rows, line], with the line of offload.py that called."""

    DeviceError = DeviceError

    def __init__(self, cfg):
        self._validator = Validator(cfg)
        self._log = []
        self._numbers = {}  # of handles, by identity
        self._streams, self._events, self._buffers = [], [], []

    def stream(self, name=""):
        """Return a new stream."""
        self._call("stream", [len(self._streams), name])
        return self._made(Stream(name), self._streams)

    def event(self):
        """Return a new event, which counts as complete until it is recorded."""
        self._call("event", [len(self._events)])
        return self._made(Event(), self._events)

    def alloc(self, rows, width, stream):
        """Return device memory that belongs to a stream."""
        self._call("alloc", [len(self._buffers), self._stream(stream)], [rows, width])
        return self._made(Buf(rows, width, False), self._buffers)

    def alloc_pinned(self, rows, width):
        """Return memory of the host."""
        self._call("alloc_pinned", [len(self._buffers)], [rows, width])
        return self._made(Buf(rows, width, True), self._buffers)

    def free(self, buf):
        """Give device memory back to its stream."""
        self._call("free", [self._buffer(buf)])

    def record_stream(self, buf, stream):
        """Say that a stream uses a buffer, too."""
        self._call("record_stream", [self._buffer(buf), self._stream(stream)])

    def copy(self, dst, src, stream):
        """Copy a range."""
        to, of = self._range(dst), self._range(src)
        self._call("copy", [to[0], of[0], self._stream(stream)], [*to[1:], *of[1:]])

    def launch(self, kernel, stream, **args):
        """Run a kernel."""
        if type(kernel) is not str or kernel not in KERNELS:
            raise DeviceError(f"there is no kernel {kernel!r}")
        self._call(kernel, [self._stream(stream)], {name: self._logged(name, value) for name, value in args.items()})

    def record(self, event, stream):
        """Let an event stand for all work of a stream so far."""
        self._call("record", [self._number(event, Event, "event"), self._stream(stream)])

    def wait(self, stream, event):
        """Let later work of a stream run after what an event stands for now."""
        self._call("wait", [self._stream(stream), self._number(event, Event, "event")])

    def sync(self, x=None):
        """Let the host wait for a stream, an event, or everything."""
        if x is None:
            self._call("sync", [])
        elif type(x) is Stream:
            self._call("sync", ["stream", self._stream(x)])
        else:
            self._call("sync", ["event", self._number(x, Event, "event")])

    # From handles to what the log has

    def _made(self, handle, handles):
        self._numbers[id(handle)] = len(handles)
        handles.append(handle)
        return handle

    def _number(self, handle, kind, word):
        if type(handle) is not kind or id(handle) not in self._numbers:
            raise DeviceError(f"{handle!r} is no {word} of this device")
        return self._numbers[id(handle)]

    def _stream(self, stream):
        return self._number(stream, Stream, "stream")

    def _buffer(self, buf):
        return self._number(buf, Buf, "buffer")

    def _range(self, value):
        if type(value) is not tuple:
            number = self._buffer(value)
            return [number, 0, self._validator.buffers[number].rows]
        if len(value) != 3:
            raise DeviceError(f"{value!r} is no range: a range is (buf, lo, hi)")
        return [self._buffer(value[0]), *value[1:]]

    def _on_device(self, value):
        span = self._range(value)
        self._validator.check_on_device(span)
        return span

    def _logged(self, name, value):
        """An argument of a kernel as the log has it."""
        if name in ("x", "y", "q", "out"):
            return self._range(value)
        if name in ("k", "v"):
            return [self._range(part) for part in (value if type(value) is list else [value])]
        return list(value) if type(value) is list else value

    def _call(self, call, ids, rows=()):
        rows = list(rows) if type(rows) is tuple else rows
        self._validator.take(call, ids, rows)
        self._enter(call, ids, rows)

    def _enter(self, call, ids, rows):
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.endswith("offload.py"):
            frame = frame.f_back
        self._log.append([call, ids, rows, frame.f_lineno if frame is not None else 0])
