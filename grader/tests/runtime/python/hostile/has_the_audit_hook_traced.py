"""Has the audit hook traced, to jump over its refusal."""

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


def tracer(frame, event, argument):
    if frame.f_code.co_name == "hook" and event == "line":
        frame.f_locals["event"] = "exec"
    return tracer


try:
    open("/etc/passwd")
except BaseException as error:
    entry = error.__traceback__
    while entry:
        hook = entry.tb_frame.f_locals.get("hook")
        if hook is not None:
            hook.__cantrace__ = True
        entry = entry.tb_next
sys.settrace(tracer)
try_all()
sys.settrace(None)
