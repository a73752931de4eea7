"""What a process gives up before it runs a student's code: processes, files, memory, modules, and doors to the system.

The launcher has taken most rights already (user, network, files). These are for what one interpreter could still do to
itself, to its parent and to the machine.
"""

import errno
import io
import os
import resource
import sys

MEMORY = 192 << 20
_HARMLESS = frozenset(
    (
        *("exec", "compile", "builtins.id", "function.__new__", "array.__new__", "pickle.find_class", "time.sleep"),
        *("marshal.dumps", "pdb.Pdb"),
        *("object.__getattr__", "object.__setattr__", "object.__delattr__"),
        *("sys._getframe", "sys._getframemodulename", "sys.settrace", "sys.setprofile", "sys.unraisablehook"),
    )
)
"""The audit events of what stays inside an interpreter. Bytecode that no compiler made (code.__new__, marshal.loads)
does not: it reaches any memory."""
_UNHEARD = {
    "posix": "access getpriority login_tty lstat mkdir mkfifo mknod nice readlink sched_setaffinity sched_setparam "
    "sched_setscheduler setns setpgid setpgrp setpriority setsid stat statvfs sync unshare",
    "_dbm": "open",  # which sleeps when it gets no descriptor
    "_gdbm": "open",
    "_posixsubprocess": "fork_exec",
    "_imp": "create_builtin create_dynamic",
    "_thread": "start_joinable_thread start_new start_new_thread",
}
"""Functions that reach outside, or get at further modules, without an audit event."""
_NEVER = ("ctypes", "_ctypes", "_interpreters", "_tkinter", "_xxsubinterpreters")
"""Modules that other modules import too, or a message asks for: they reach any memory, or make interpreters without
this one's hook (Tcl's removes files)."""
_EMPTIED = {"_multiprocessing": "SemLock sem_unlink", "_posixshmem": "shm_open shm_unlink"}
"""Modules that others import without need; all their functions are refused. A lock can be made of any address."""
_ABSENT = frozenset(("lstat", "readlink", "stat", "statvfs"))
"""Functions of `_UNHEARD` for which there is no file: what only asks whether there is one gets an answer."""
_HIDDEN = frozenset(
    (
        *("os", "posix", "posixpath", "_signal", "signal", "resource", "select", "json", "_json", "gc"),
        *("cage", "look", "modules", "plain", "program", "__main__"),
    )
)


class Refused(PermissionError):
    """What a program does is refused; `event` is the name of the call."""

    def __init__(self, event):
        super().__init__(f"{event} is not allowed here")
        self.event = event


def close_in(cpu_seconds):
    """Give up what no program of a lab needs. Nothing gives it back."""
    for what, number in (
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),  # no further descriptor of any kind
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, cpu_seconds),
    ):
        hard = resource.getrlimit(what)[1]
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(what, (most, most))


def modules_to_hide(allowed):
    """Return the names of imported modules that a program does not name."""
    tops = _HIDDEN - set(allowed)
    return [name for name in sys.modules if name.partition(".")[0] in tops]


def hide_modules(names):
    """Take modules away: what imports them anew is refused."""
    for name in names:
        del sys.modules[name]
    sys.modules["__main__"] = type(sys)("__main__")  # inspect wants one


def forbid_memory():
    """Let no module import what reaches any memory."""
    sys.modules.update(dict.fromkeys(_NEVER))
    for module, names in _EMPTIED.items():
        sys.modules[module] = type(sys)(module)
        vars(sys.modules[module]).update((name, _refusing(f"{module}.{name}")) for name in names.split())
    sys.modules["_multiprocessing"].SemLock.SEM_VALUE_MAX = 0  # which is read when locks are imported


def stand_ins(opened_by):
    """Return what a child replaces: namespaces of modules, names, and functions.

    These are the functions that the hook does not hear of, and `open`, under all names that modules have for them.
    """
    replaced, refused = {id(io.open): _opening(io.open, opened_by)}, []
    for module, names in _UNHEARD.items():
        for name in names.split():
            function = getattr(sys.modules.get(module), name, None)
            if function is not None:
                replaced[id(function)] = _refusing(f"{module}.{name}")
                refused.append(function)
    for value in vars(os).values():
        if type(value) is set:  # such as os.supports_dir_fd, which would give the functions away
            value.difference_update(refused)
    spaces = [vars(module) for module in sys.modules.values() if module is not None]
    return [
        (space, name, replaced[id(value)]) for space in spaces for name, value in space.items() if id(value) in replaced
    ]


def replace(places):
    """Put the stand-ins where they belong."""
    for space, name, function in places:
        space[name] = function


def _refusing(name):
    """A function in the place of another one."""

    def refuse(*_, **__):
        raise Refused(name)

    def is_absent(path, *_, **__):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _path(path))

    def has_no_access(path, *_, **__):
        _path(path)
        return False

    def made(path, *_, **__):  # for files to be written, of which nothing is kept either
        _path(path)

    called = name.partition(".")[2]
    return {"access": has_no_access, "mkdir": made, **dict.fromkeys(_ABSENT, is_absent)}.get(called, refuse)


def _path(path):
    return path if isinstance(path, int) else os.fspath(path)


class _Nowhere(io.RawIOBase):
    """A file opened for writing: what is written is dropped."""

    def __init__(self, name, mode):
        self.name = name
        self.mode = mode

    def readable(self):
        return "+" in self.mode

    def writable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *_):
        return 0

    def truncate(self, size=None):
        return size or 0

    def readinto(self, _):
        return 0

    def write(self, content):
        return memoryview(content).nbytes


def _opening(opened, opened_by):
    """Return what opens files: one for writing keeps nothing, and `opened_by` is told the frame."""

    def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *arguments, **named):  # noqa: A001
        letters = set(mode) if isinstance(mode, str) and not isinstance(file, int) else set()
        if len(letters & set("rwax")) != 1 or "r" in letters or not letters <= set("rwaxbt+"):
            return opened(file, mode, buffering, encoding, errors, newline, *arguments, **named)
        opened_by(sys._getframe(1))  # noqa: SLF001 - there is no other way to the line of the call
        content = _Nowhere(file, mode)
        if buffering != 0:
            content = io.BufferedRandom(content) if "+" in letters else io.BufferedWriter(content)
        return content if "b" in letters else io.TextIOWrapper(content, encoding, errors, newline, buffering == 1)

    return open


class Importer:
    """Stands before all others, for what imports without the statement."""

    def __init__(self, ask):
        self.find_spec = ask


def refuse_doors(ask):
    """Refuse what opens files, starts processes or imports further modules. A hook cannot be taken away again.

    `ask` is told the name of each module that is not there, and does not come back.

    Nothing refers to the hook but the interpreter: with a reference a program could have it traced, and so changed.
    """
    harmless, refused, not_there, creating = _HARMLESS, Refused, FileNotFoundError, os.O_CREAT
    number, text = errno.ENOENT, os.strerror(errno.ENOENT)

    def hook(event, arguments, harmless=harmless, refused=refused, not_there=not_there, ask=ask):
        if event == "import":
            ask(arguments[0])
            raise refused(event)  # at once: a changed `ask` comes back, and may have changed what is asked below
        if event == "open" and not arguments[2] & creating:
            raise not_there(number, text, arguments[0])
        if event not in harmless:
            raise refused(event)

    sys.addaudithook(hook)
    sys.meta_path.insert(0, Importer(ask))
