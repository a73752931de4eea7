"""What a process gives up before it runs a student's code: processes, files, memory, modules, and doors to the system.

The launcher has taken most rights already (user, network, files). These are for what one interpreter could still do to
itself, to its parent and to the machine.
"""

import resource
import sys

MEMORY = 192 << 20
_HARMLESS = frozenset(
    (
        *("exec", "compile", "builtins.id", "function.__new__", "array.__new__", "pickle.find_class", "time.sleep"),
        "marshal.dumps",
        *("object.__getattr__", "object.__setattr__", "object.__delattr__"),
        *("sys._getframe", "sys._getframemodulename", "sys.settrace", "sys.setprofile", "sys.unraisablehook"),
    )
)
"""The audit events of what stays inside an interpreter. Bytecode that no compiler made (code.__new__, marshal.loads)
does not: it reaches any memory."""
_UNHEARD = {
    "posix": "access getpriority lstat mkfifo mknod nice readlink sched_setaffinity sched_setparam sched_setscheduler "
    "setpgid setpgrp setpriority setsid stat statvfs sync",
    "_posixsubprocess": "fork_exec",
    "_multiprocessing": "sem_unlink",
    "_posixshmem": "shm_unlink",
    "_imp": "create_builtin create_dynamic",
}
"""Functions that reach outside, or get at further modules, without an audit event."""
_NEVER = ("ctypes", "_ctypes")
"""Modules that reach any memory, which other modules import too."""
_HIDDEN = frozenset(
    (
        *("os", "posix", "posixpath", "_signal", "signal", "resource", "select", "json", "_json", "gc"),
        *("cage", "look", "modules", "plain", "program", "__main__"),
    )
)


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


def refuse_unheard():
    """Replace, under all names that modules have for them, the functions that the hook does not hear of."""
    replaced = {}
    for module, names in _UNHEARD.items():
        for name in names.split():
            function = getattr(sys.modules.get(module), name, None)
            if function is not None:
                replaced[id(function)] = _refusing(f"{module}.{name}")
    for module in list(sys.modules.values()):
        names = vars(module) if module is not None else {}
        for name in [name for name, value in names.items() if id(value) in replaced]:
            names[name] = replaced[id(names[name])]


def _refusing(name):
    """A function in the place of another one."""

    def refuse(*_, **__):
        raise PermissionError(f"{name} is not allowed here")

    return refuse


def refuse_doors():
    """Refuse what opens files, starts processes or imports further modules. A hook cannot be taken away again.

    Nothing refers to the hook but the interpreter: with a reference a program could have it traced, and so changed.
    """
    harmless, refused, no_import = _HARMLESS, PermissionError, ImportError

    def hook(event, arguments, harmless=harmless, refused=refused, no_import=no_import):
        if event == "import":
            raise no_import(f"{arguments[0]} is not among the modules that may be imported here")
        if event not in harmless:
            raise refused(f"{event} is not allowed here")

    sys.addaudithook(hook)
