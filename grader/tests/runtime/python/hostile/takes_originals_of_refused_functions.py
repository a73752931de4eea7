"""Takes refused functions from the sets and dicts of the library that hold them too."""

import multiprocessing.resource_tracker
import os

held = list(getattr(multiprocessing.resource_tracker, "_CLEANUP_FUNCS", {}).values())
for name, functions in vars(os).items():
    if name.startswith("supports_") and isinstance(functions, set):
        held += functions
ARGUMENTS = {"mkfifo": ("/tmp/hostile_mark",), "mknod": ("/var/tmp/hostile_mark",), "stat": ("/etc/passwd",)}
for function in held:
    name = function.__name__
    try:
        print("hostile: it works", name, function(*ARGUMENTS.get(name, ("/hostile_mark",))))
    except FileNotFoundError as error:
        if "unlink" in name:
            print("hostile: it was looked for", error)
    except BaseException:
        pass
