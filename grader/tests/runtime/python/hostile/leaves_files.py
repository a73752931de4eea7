"""Makes files, folders, links and shared memory in all places that may be written to."""

import multiprocessing.shared_memory
import os
import pathlib
import shutil
import sqlite3
import tempfile

for folder in (".", "/tmp", "/var/tmp", "/dev/shm", os.environ.get("HOME", "/")):
    path = f"{folder}/hostile_mark"
    for attempt in (
        lambda path=path: open(path, "w").write("x"),
        lambda path=path: os.mkdir(path),
        lambda path=path: os.symlink("/etc/passwd", path),
        lambda path=path: os.link("play.pyc", path),
        lambda path=path: pathlib.Path(path).touch(),
        lambda path=path: shutil.copy("play.pyc", path),
        lambda path=path: sqlite3.connect(path).execute("create table a (b)"),
        lambda path=path: os.rename("play.pyc", path),
        lambda path=path: tempfile.mkstemp(prefix="hostile_mark", dir=folder),
        lambda path=path: os.remove("play.pyc"),
        lambda path=path: os.chmod(folder, 0),
    ):
        try:
            attempt()
        except BaseException:
            pass
try:
    multiprocessing.shared_memory.SharedMemory("hostile_mark", create=True, size=9)
except BaseException:
    pass
