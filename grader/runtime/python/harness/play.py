"""The harness of Python submissions: this process forks for each case, and only its children run a student's code.

    python -s -S -P -B play.pyc FEED CHANNEL

FEED gives a header, then a message for each case: its length (4 bytes), then its content in marshal's format. A child
sends messages through a pipe of its own. This process passes them on through CHANNEL in frames, so that no program
writes frames, numbers of cases, limits or endings: kind (1 byte), case (4), length (4), body. Kinds:

    B  a case begins (again)         S  record after an operation     R  where a refusal was raised
    T  all records of a trace        L  what the watched call did     D  all was played
    X  an error ended the trace      H  where the program was when its time was used up, then the loop it was in
    E  how the child ended           C  what a check shows            Z  no case is left
    N  the line that opened a file whose content is dropped

Two kinds are not passed on: I says that a module was executed, or an operation done, and M requests a module.
"""

import _signal as signal
import gc
import marshal
import os
import select
import struct
import sys
import time

_FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, _FOLDER)

import cage
import program
from plain import encoded

_HEAD = struct.Struct(">BII")
_MESSAGE = struct.Struct(">BI")
_MOST_MESSAGE = 1 << 21
_CHUNK = 1 << 16
_LOOK = 0.02
_PLACE = struct.Struct(">I")
_MESSAGES_EACH = 2
"""The number of messages for each operation; a program that sends more has forged some."""
_MOST_OTHERS = 8
_MOST_CHILDREN = 10
"""The most children for a part of the traces of a generated case, because each trace that ends its child costs a child.
After a trace that hangs, no others are played together; the grader plays some alone."""
_PATIENCE = 4
"""Compiling and executing a module may take this many times as long as an operation. A child reports when it has
executed the module (I)."""
_ANSWERS = 2
"""The number of answers of a child that was asked where its program is."""
_MOST_MODULES = 100
"""The most modules that are imported because a child requests them (M). That child ends, and another one begins."""
_KNOWN = frozenset(b"SRTLDXHCIMN")


def main():
    """Play the cases that FEED contains; if its header requests a check, only compile and execute the module."""
    feed, channel = map(int, sys.argv[1:])
    del sys.argv[1:]  # a submission that parses its arguments finds none
    arrived = _messages(feed)
    header = next(arrived)
    harness = Harness(header, feed, channel)
    if header["check"]:
        harness.check()
    else:
        harness.begin(header["imports"])
        for case in arrived:
            harness.case(case)
    harness.frame(b"Z", 0, b"")


def _messages(descriptor):
    """Yield the messages of FEED. No byte is read too early, because a child has in its memory all that was read."""
    while head := _read(descriptor, _PLACE.size):
        yield marshal.loads(_read(descriptor, *_PLACE.unpack(head)))  # noqa: S302 - of the grader


def _read(descriptor, size):
    """Read `size` bytes; fewer at the end of FEED."""
    parts = []
    while size and (part := os.read(descriptor, min(size, _CHUNK))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Harness:
    """Plays cases one after the other, each in a child."""

    def __init__(self, header, feed, channel):
        self.header = header
        self.descriptors = feed, channel
        self.channel = channel
        self.file = header["file"]
        self.source = header["source"]
        self.limits = header["limits"]
        self.limit = self.limits["operation"]
        self.left = self.limits["total"]
        self.hangs = self.limits["hangs"]
        self.hanging = set()
        self.hung_together = set()
        self.submission = None
        self.hidden = ()
        self.stand_ins = ()
        self.asked = set()

    def begin(self, names):
        """Make all objects that children need. If each child made them, they would cost memory in each child."""
        sys.path.remove(_FOLDER)  # programs may write to it, and no import may find what they wrote
        code = compile(self.source, self.file, "exec", dont_inherit=True)
        cage.forbid_memory()
        cage.add_site_builtins()
        self._load(name for name in names if name not in self.header["given"])
        self.submission = program.Submission(self.header, code)

    def _load(self, names):
        cage.preload(names)
        self.stand_ins = cage.stand_ins(self._dropped)
        self.hidden = cage.modules_to_hide(self.header["imports_allowed"])

    def _dropped(self, frame):
        self.submission.report_dropped(frame)  # the submission is made after the stand-ins

    def check(self):
        """Compile the text in one child, execute it in another one, and report both."""
        import json  # noqa: PLC0415 - only a check needs these modules, and loading them takes time

        import look  # noqa: PLC0415

        look.preload_encoding(self.source)
        looked = []

        def look_at(send):
            importable = [*self.header["given"], self.header["module"]]  # a module may import itself
            problems, names, empty = look.look(self.source, self.file, importable)
            send(b"C", encoded({"problems": problems, "imports": names, "empty": empty}).encode())

        def execute(send):
            self._runner(send).check()
            send(b"D", b"")

        def heard(kind, body):
            looked.append(json.loads(body))
            self.frame(kind, 0, body)

        def patience():
            return _PATIENCE * self.limit

        ended = self.child(look_at, heard, patience)
        self.frame(b"E", 0, encoded(ended).encode())
        if not looked or looked[0]["problems"]:
            return
        self.header["imports_allowed"] += [name.partition(".")[0] for name in looked[0]["imports"]]
        self.begin([*looked[0]["imports"], *self.header["imports"]])
        while self._loaded_for(ended := self.child(execute, lambda kind, body: self.frame(kind, 1, body), patience)):
            pass
        self.frame(b"E", 1, encoded(ended).encode())

    def _runner(self, send):
        self.submission.send = send
        program.answer_interruptions(self.submission)
        cage.hide_modules(self.hidden)
        cage.replace(self.stand_ins)
        cage.refuse_doors(cage.asking(send, self.asked, ends=len(self.asked) < _MOST_MODULES))
        return self.submission

    def _loaded_for(self, ended):
        """Import the module that a child requested. Return False if the child ended for another reason."""
        name = ended["module"]
        if not name or name in self.asked or len(self.asked) >= _MOST_MODULES:
            return False
        self.asked.add(name)
        if cage.may_be_loaded(name):
            self.header["imports_allowed"].append(name.partition(".")[0])
            self._load([name])
        return True

    def case(self, case):
        """Play a case, or a part of the traces of a generated one."""
        number = case["case"]
        if case.get("first", 0) == 0:
            self.frame(b"B", number, b"")
        if self.left <= 0:
            ended = {"no_time": True}
        elif "traces" in case:
            ended = self._traces(case)
        else:
            ended = self._operations(case)
        self.frame(b"E", number, encoded(ended).encode())

    def _operations(self, case):
        """Play a case. If it reaches its time limit, play it again with twice the time; only this second end counts."""
        ended = self._played(case, self.limit)
        if ended["hang"] and ended["call"] not in self.hanging:
            self.frame(b"B", case["case"], b"")
            ended = self._played(case, 2 * self.limit)
            if ended["hang"]:
                self.hanging.add(ended["call"])
        return ended

    def _played(self, case, limit):
        """Play the operations of a case in a child, and return how it ended, and in which call."""
        names = [name for name, _ in case["operations"]]
        done, executed = [], []

        def play(send):
            def report(record):
                send(b"S", record.encode())

            runner = self._runner(send)
            runner.execute(case.get("variant"))
            send(b"I", b"")
            runner.play(case["operations"], report, case.get("watched"))
            send(b"D", b"")

        def heard(kind, body):
            if kind == ord("I"):
                executed.append(kind)
                return
            if kind == ord("S"):
                done.append(kind)
            self.frame(kind, case["case"], body)

        def call():
            return names[len(done)] if len(done) < len(names) else ""

        def limit_now():
            if not executed:
                return _PATIENCE * limit
            return limit if call() not in self.hanging else max(self.limits["least"], min(limit, self.hangs))

        while self._loaded_for(ended := self.child(play, heard, limit_now, len(names))):
            self.frame(b"B", case["case"], b"")
            done.clear()
            executed.clear()
        ended["call"] = call()
        if ended["hang"] and ended["call"] in self.hanging:
            self.hangs -= ended["own"]
        return ended

    def _traces(self, case):
        """Play many traces in one child, which executes the module once. A trace that ends the child is skipped.

        A trace that fails here is played again, alone, because traces in one child can affect each other. Traces that
        are cases of their own (`every`) report when an operation is done (I); each operation has as much time as when
        a case is played for the second time.
        """
        number, first, traces, lengths = case["case"], case["first"], case["traces"], case["lengths"]
        every = case.get("every", self.header["every"])
        done, executed = [], []

        def play(send):
            left = [*map(marshal.loads, traces[len(done) :])]  # later, marshal is refused
            records = []

            def report(record=None):
                if record is not None:
                    records.append(record)
                if "every" in case:
                    send(b"I", b"")

            runner = self._runner(send)
            runner.execute()
            report()
            for operations in left:
                records.clear()
                runner.play(operations, report, every=every, explains=False)
                send(b"T", f"[{','.join(records)}]".encode())
            send(b"D", b"")

        def heard(kind, body):
            if kind == ord("I"):
                executed.append(kind)
            if kind == ord("T"):
                self.frame(kind, number, _PLACE.pack(first + len(done)) + body)
                done.append(kind)

        def limit():
            return (2 if executed else _PATIENCE) * self.limit

        ended = {"no_time": False}
        for _ in range(_MOST_CHILDREN):
            if len(done) >= len(traces) or self.left <= 0 or number in self.hung_together:
                break
            operations = sum(lengths[len(done) :])
            while self._loaded_for(child := self.child(play, heard, limit, operations)):
                executed.clear()
            executed.clear()
            if child["hang"]:
                self.hung_together.add(number)
            done.append(None)
        return ended

    def child(self, play, heard, limit, operations=0):
        """Fork, let the child play these operations, listen to it, and return how it ended."""
        sys.stdout.flush()
        gc.freeze()  # a collection in the child would copy every page on which there is an object of this process
        end, its_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(end)
            for descriptor in self.descriptors:
                os.close(descriptor)
            _be_child(its_end, play, self.limits["child"])
        os.close(its_end)
        most = self.limits["bytes"], _MESSAGES_EACH * operations + _MOST_OTHERS
        ended = _Listening(pid, end, heard, most, self.limits["answer"]).listen(limit, self.left)
        self.left -= ended["own"]
        return ended

    def frame(self, kind, case, body):
        """Send a frame."""
        kind = kind if isinstance(kind, int) else kind[0]
        data = memoryview(_HEAD.pack(kind, case, len(body)) + body)
        while data:
            data = data[os.write(self.channel, data) :]


def _be_child(descriptor, play, cpu_seconds):
    """Give up rights, play, and end at once, without the steps that an interpreter takes at its end."""

    def send(kind, body):
        data = memoryview(_MESSAGE.pack(kind[0], len(body)) + body)
        while data:
            data = data[write(descriptor, data) :]

    write, leave, out = os.write, os._exit, sys.stdout
    status = 0
    try:
        cage.close_in(cpu_seconds)
        try:
            play(send)
        except program.Ended:
            status = 1
        out.flush()
    except BaseException:  # a program may have done anything to this process
        status = 2
    finally:
        leave(status)


class _Listening:
    """Listens to a child. Ends it if it has used its time, or more bytes or messages than it may send."""

    def __init__(self, pid, descriptor, heard, most, answer):
        self.pid = pid
        self.descriptor = descriptor
        self.heard = heard
        self.most_bytes, self.most_messages = most
        self.answer = answer
        self.messages = 0
        self.module = ""
        self.answers = 0  # of kind H: where it is when its time is used up, then in which loop
        self.idle = 0.0
        self.cpu = 0.0
        self.arrived = b""

    def listen(self, limit, left):
        """Return how the child ended. It has `left` seconds in total, and `limit()` seconds between two messages."""
        since = total = 0.0
        asked = None
        flood = hang = no_time = False
        looked = time.monotonic()
        while True:
            ready, _, _ = select.select([self.descriptor], [], [], _LOOK)
            before = self.messages
            if ready:
                chunk = os.read(self.descriptor, _CHUNK)
                total += len(chunk)
                if not chunk or total > self.most_bytes or not self._take(chunk):
                    flood = bool(chunk)
                    break
            looked = self._look(looked, quiet=not ready)
            if self.messages > before and asked is None:
                since = self.own
            if self.own > left:
                no_time = True
                break
            if asked is not None and (self.answers == _ANSWERS or self.own > asked + self.answer):
                break
            if asked is None and self.own - since > limit():
                hang, asked = True, self.own
                os.kill(self.pid, signal.SIGPROF)
        status, cpu = self._end(looked, 0 if hang else self.answer)
        own = cpu + self.idle
        reasons = {"hang": hang, "flood": flood, "no_time": no_time, "module": self.module}
        return {"status": status, "own": own, **reasons}

    @property
    def own(self):
        """The seconds in which the child computed or slept."""
        return self.cpu + self.idle

    def _take(self, chunk):
        """Pass on the messages that are complete. Return False if one is unknown or too long, or is one too many."""
        self.arrived += chunk
        at = 0
        while len(self.arrived) >= at + _MESSAGE.size:
            kind, length = _MESSAGE.unpack_from(self.arrived, at)
            if kind not in _KNOWN or length > _MOST_MESSAGE or self.messages == self.most_messages:
                return False
            end = at + _MESSAGE.size + length
            if len(self.arrived) < end:
                break
            self.messages += 1
            self.answers += kind == ord("H")
            body = self.arrived[at + _MESSAGE.size : end]
            if kind == ord("M"):
                self.module = body.decode(errors="replace")[: cage.MOST_CHARACTERS]
            else:
                self.heard(kind, body)
            at = end
        self.arrived = self.arrived[at:]
        return True

    def _look(self, looked, *, quiet):
        """Measure the child's own time. It sleeps if it computes nothing although this process is woken in time."""
        now = time.monotonic()
        before = self.cpu
        try:
            self.cpu = time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            pass
        if quiet and self.cpu - before < 0.001 and now - looked < 2 * _LOOK:
            self.idle += now - looked
        return now

    def _end(self, looked, patience):
        """Wait `patience` seconds for the child, which may continue although it closed its pipe, and then end it.

        Returns its status and CPU seconds.
        """
        os.close(self.descriptor)
        most = self.own + patience
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                return status, usage.ru_utime + usage.ru_stime
            if self.own >= most:
                os.kill(self.pid, signal.SIGKILL)
                _, status, usage = os.wait4(self.pid, 0)
                return status, usage.ru_utime + usage.ru_stime
            time.sleep(0.0005)
            looked = self._look(looked, quiet=True)


if __name__ == "__main__":
    main()
