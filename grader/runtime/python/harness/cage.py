"""What a process gives up before it runs a student's code: processes, files, memory, modules, and doors to the system.

The launcher has taken most rights already (user, network, files). The rights taken here are those by which one
interpreter could still harm itself, its parent and the machine. The second part says which modules a submission may
import: those that its text names (look.py), and those that the lab gives.
"""

import errno
import io
import os
import resource
import site
import sys

MEMORY = 192 << 20
_HARMLESS = frozenset(
    (
        *("exec", "compile", "builtins.id", "function.__new__", "array.__new__", "pickle.find_class", "time.sleep"),
        *("marshal.dumps", "os.putenv", "os.unsetenv", "pdb.Pdb"),
        *("object.__getattr__", "object.__setattr__", "object.__delattr__"),
        *("sys._getframe", "sys._getframemodulename", "sys.settrace", "sys.setprofile", "sys.unraisablehook"),
    )
)
"""The audit events of actions without effect outside an interpreter. Events that make bytecode without a compiler
(code.__new__, marshal.loads) are not among them: such bytecode reaches any memory."""
_UNHEARD = {
    "posix": "access getpriority login_tty lstat mkdir mkfifo mknod nice readlink sched_setaffinity sched_setparam "
    "sched_setscheduler setns setpgid setpgrp setpriority setsid stat statvfs sync unshare",
    "_dbm": "open",  # sleeps if it gets no descriptor
    "_gdbm": "open",
    "_posixsubprocess": "fork_exec",
    "_imp": "create_builtin create_dynamic",
    "_thread": "start_joinable_thread start_new start_new_thread",
}
"""Functions that act outside the process, or load further modules, without an audit event."""
_NEVER = ("ctypes", "_ctypes", "_interpreters", "_tkinter", "_xxsubinterpreters")
"""Modules that other modules import too, or that a message requests. They reach any memory, or make interpreters
without the audit hook (the interpreter of Tcl removes files)."""
_EMPTIED = {"_multiprocessing": "SemLock sem_unlink", "_posixshmem": "shm_open shm_unlink"}
"""Modules that others import without need; all their functions are refused. A lock can be made of any address."""
_ABSENT = frozenset(("lstat", "readlink", "stat", "statvfs"))
"""Functions of `_UNHEARD` that report that no file exists: a program that asks for a file gets an answer."""
_HIDDEN = frozenset(
    (
        *("os", "posix", "posixpath", "_signal", "signal", "resource", "select", "json", "_json", "gc"),
        *("cage", "look", "plain", "program", "__main__"),
    )
)


class Refused(PermissionError):
    """An action of a program is refused; `event` is the name of its audit event or function."""

    def __init__(self, event):
        super().__init__(f"{event} is not allowed here")
        self.event = event


def close_in(cpu_seconds):
    """Give up rights that no program of a lab needs. They cannot be taken back."""
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
    """Return the names of the imported modules that are hidden from a program, unless they are `allowed`."""
    tops = _HIDDEN - set(allowed)
    return [name for name in sys.modules if name.partition(".")[0] in tops]


def hide_modules(names):
    """Remove modules, so that importing them again is refused."""
    for name in names:
        del sys.modules[name]
    sys.modules["__main__"] = type(sys)("__main__")  # the module `inspect` needs `__main__`


def forbid_memory():
    """Prevent the import of modules that reach any memory."""
    sys.modules.update(dict.fromkeys(_NEVER))
    for module, names in _EMPTIED.items():
        sys.modules[module] = type(sys)(module)
        vars(sys.modules[module]).update((name, _refusing(f"{module}.{name}")) for name in names.split())
    sys.modules["_multiprocessing"].SemLock.SEM_VALUE_MAX = 0  # is read when locks are imported


def stand_ins(opened_by):
    """Return what a child replaces: (namespace of a module, name, new function).

    These are `open` and the functions without an audit event, under all names that modules have for them.
    """
    replaced, refused = {id(io.open): _opening(io.open, opened_by)}, []
    for module, names in _UNHEARD.items():
        for name in names.split():
            function = getattr(sys.modules.get(module), name, None)
            if function is not None:
                replaced[id(function)] = _refusing(f"{module}.{name}")
                refused.append(function)
    for value in vars(os).values():
        if type(value) is set:  # such as os.supports_dir_fd, from which a program could get the functions
            value.difference_update(refused)
    spaces = [vars(module) for module in sys.modules.values() if module is not None]
    return [
        (space, name, replaced[id(value)]) for space in spaces for name, value in space.items() if id(value) in replaced
    ]


def replace(places):
    """Replace functions. `places` has (namespace of a module, name, new function), as `stand_ins` returns them."""
    for space, name, function in places:
        space[name] = function


def _refusing(name):
    """Return the function that replaces the function with this name."""

    def refuse(*_, **__):
        raise Refused(name)

    def is_absent(path, *_, **__):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _path(path))

    def has_no_access(path, *_, **__):
        _path(path)
        return False

    def made(path, *_, **__):  # the files in the folder are not kept, either
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
    """Return a function that opens files. A file for writing keeps nothing; `opened_by` gets the caller's frame."""

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
    """The first importer, also used by imports without the import statement (importlib)."""

    def __init__(self, ask):
        self.find_spec = ask


def refuse_doors(ask):
    """Refuse to open files, start processes or import further modules. A hook cannot be removed again.

    `ask` is called with the name of each module that is not loaded, and does not return.

    Only the interpreter refers to the hook: with a reference, a program could trace it, and so change it.
    """
    harmless, refused, not_there, creating = _HARMLESS, Refused, FileNotFoundError, os.O_CREAT
    number, text = errno.ENOENT, os.strerror(errno.ENOENT)

    def hook(event, arguments, harmless=harmless, refused=refused, not_there=not_there, ask=ask):
        if event == "import":
            ask(arguments[0])
            # Refuse at once: `ask` returns only if a program changed it, and then the names below may be changed, too.
            raise refused(event)
        if event == "open" and not arguments[2] & creating:
            raise not_there(number, text, arguments[0])
        if event not in harmless:
            raise refused(event)

    sys.addaudithook(hook)
    sys.meta_path.insert(0, Importer(ask))


MOST_CHARACTERS = 100
"""No module has a longer name. A name that a message cuts off or cannot encode would be requested again and again."""
_NOT_IMPORTED = {
    *("ctypes", "antigravity", "this", "turtle", "turtledemo", "tkinter"),
    *("idlelib", "lib2to3", "ensurepip", "venv"),
}
_PRIVATE = {"__future__", "_thread"}


def may_be_imported(name, given):
    """Return whether a submission may import this module: a public one of the standard library, or a given one."""
    top, *below = name.split(".")
    if top in given:
        return True
    public = top in _PRIVATE or not any(part.startswith("_") for part in (top, *below))
    return public and may_be_loaded(name)


def may_be_loaded(name):
    """Return whether a module is in the standard library and may be imported by its other modules."""
    top, *below = name.split(".")
    known = top in sys.stdlib_module_names or top.startswith("_sysconfigdata_")  # its name contains the platform
    known = known and name.isascii() and len(name) <= MOST_CHARACTERS
    return known and top not in _NOT_IMPORTED and "__main__" not in below  # __main__ runs a program


def add_site_builtins():
    """Add `exit`, `quit` and similar functions, which every Python has that is not isolated."""
    site.setquit()
    site.setcopyright()
    site.sethelper()


def preload(names):
    """Import modules before a program runs, because the program itself cannot open their files."""
    for name in names:
        try:
            __import__(name)
        except (Exception, SystemExit):  # noqa: S112 - a module of another system; the program gets an ImportError
            continue


def asking(send, asked, *, ends):
    """Return a function that is called with the name of a module that is not loaded, and raises the import's error.

    If `ends`, the function requests a module of the standard library that was not requested yet, and ends this process.
    """
    leave, missing = os._exit, ModuleNotFoundError

    def ask(name, *_):
        if not may_be_loaded(name):
            raise missing(f"{name} is not among the modules that may be imported here", name=name)
        if ends and name not in asked:
            send(b"M", name.encode())
            leave(0)
        raise missing(f"No module named {name!r}", name=name)

    return ask
