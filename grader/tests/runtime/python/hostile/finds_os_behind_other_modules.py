"""Takes os from a module that imports it, and makes what no audit event tells of."""

import dataclasses
import os

for module in (os, dataclasses.inspect.os, dataclasses.inspect.linecache.os):
    for attempt in (
        lambda module=module: module.mkfifo("/tmp/hostile_mark"),
        lambda module=module: module.mkfifo("hostile_mark"),
        lambda module=module: module.mknod("/tmp/hostile_mark_node"),
        lambda module=module: module.posix.mknod("/tmp/hostile_mark_node"),
        lambda module=module: module.nice(19),
        lambda module=module: module.setsid(),
        lambda module=module: module.sched_setscheduler(0, 5, module.sched_param(0)),
    ):
        try:
            attempt()
        except BaseException:
            pass
