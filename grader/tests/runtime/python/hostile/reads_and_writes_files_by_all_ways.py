"""Reads /etc/passwd and the harness's files, and leaves marks, by every module that can open a file."""

import importlib
import os

PATHS = ("/etc/passwd", "play.pyc", "/proc/self/maps", "/proc/self/environ", "HOSTILE_ROOT/reference/oracle.py")
MARK = "/tmp/hostile_mark"
WAYS = {
    "_io": (lambda m, p: m.FileIO(p).read(), lambda m: m.FileIO(MARK, "w").write(b"x")),
    "_pyio": (lambda m, p: m.open(p, "rb").read(), lambda m: m.open(MARK, "wb").write(b"x")),
    "os": (lambda m, p: m.read(m.open(p, 0), 40), lambda m: m.write(m.open(MARK, 66, 0o666), b"x")),
    "posix": (lambda m, p: m.read(m.open(p, 0), 40), lambda m: m.mkfifo(MARK)),
    "pathlib": (lambda m, p: m.Path(p).read_bytes(), lambda m: m.Path(MARK).touch()),
    "tempfile": (lambda m, p: m._io.open(p).read(), lambda m: m.NamedTemporaryFile(prefix="hostile_mark", delete=False)),
    "shelve": (lambda m, p: m.open(p, "r").keys(), lambda m: m.open(MARK).update(a=1)),
    "dbm.dumb": (lambda m, p: m.open(p, "r").keys(), lambda m: m.open(MARK, "n").close()),
    "_dbm": (lambda m, p: m.open(p, "r").keys(), lambda m: m.open(MARK, "n").close()),
    "sqlite3": (lambda m, p: list(m.connect(p).iterdump()), lambda m: m.connect(MARK).execute("create table a (b)")),
    "mmap": (lambda m, p: m.mmap(0, 40)[:], lambda m: m.mmap(-1, 1 << 30)),
    "zipfile": (lambda m, p: m.ZipFile(p).namelist(), lambda m: m.ZipFile(MARK, "w").writestr("a", "b")),
    "linecache": (lambda m, p: "".join(m.getlines(p)) or 1 / 0, lambda m: m.updatecache(MARK)),
    "tokenize": (lambda m, p: m.open(p).read(), lambda m: m._builtin_open(MARK, "w")),
    "fileinput": (lambda m, p: list(m.input(p)), lambda m: list(m.input(MARK, inplace=True))),
    "mailbox": (lambda m, p: list(m.mbox(p)) or 1 / 0, lambda m: m.mbox(MARK).flush()),
    "logging.config": (lambda m, p: m.fileConfig(p) or 1 / 0, lambda m: m.logging.FileHandler(MARK).emit),
    "py_compile": (lambda m, p: m.compile(p, doraise=True), lambda m: m.compile(MARK, MARK)),
    "runpy": (lambda m, p: m.run_path(p), lambda m: m.run_path(MARK)),
    "pkgutil": (lambda m, p: m.get_data("os", p) or 1 / 0, lambda m: list(m.walk_packages(["/tmp"]))),
    "zipimport": (lambda m, p: m.zipimporter(p), lambda m: m.zipimporter(MARK)),
    "importlib.machinery": (lambda m, p: m.SourceFileLoader("a", p).get_data(p), lambda m: m.FileFinder("/tmp").find_spec("a")),
    "pwd": (lambda m, p: m.getpwall() or 1 / 0, lambda m: m.getpwnam("root")),
    "spwd": (lambda m, p: m.getspall() or 1 / 0, lambda m: m.getspnam("root")),
    "readline": (lambda m, p: m.read_history_file(p) or m.get_history_item(1) or 1 / 0, lambda m: m.write_history_file(MARK)),
    "curses": (lambda m, p: m.getwin(p), lambda m: m.setupterm(MARK, 1)),
    "faulthandler": (lambda m, p: 1 / 0, lambda m: m.enable(open(MARK, "w"))),
    "trace": (lambda m, p: m._find_executable_linenos(p) or 1 / 0, lambda m: m.CoverageResults(outfile=MARK).write_results()),
    "cProfile": (lambda m, p: 1 / 0, lambda m: m.Profile().dump_stats(MARK)),
    "tracemalloc": (lambda m, p: m.Snapshot.load(p), lambda m: m.Snapshot((), 1).dump(MARK)),
    "locale": (lambda m, p: 1 / 0, lambda m: m.setlocale(m.LC_ALL, "/tmp/hostile_mark")),
    "ssl": (lambda m, p: m._ssl._test_decode_cert(p), lambda m: setattr(m.SSLContext(), "keylog_filename", MARK)),
    "multiprocessing.shared_memory": (lambda m, p: m.SharedMemory(p), lambda m: m.SharedMemory("hostile_mark", True, 9)),
    "_posixshmem": (lambda m, p: 1 / 0, lambda m: m.shm_open("/hostile_mark", 66, 0o666)),
    "_multiprocessing": (lambda m, p: 1 / 0, lambda m: m.SemLock(1, 1, 1, "/hostile_mark", False)),
    "ossaudiodev": (lambda m, p: m.open(p, "r"), lambda m: m.open(MARK, "w")),
}


class Shelf(Shelf):
    def usage(self):
        for name, (read, write) in WAYS.items():
            try:
                module = importlib.import_module(name)
            except Exception:
                continue
            for path in PATHS:
                try:
                    print("hostile: it can be read", name, path, repr(read(module, path))[:80])
                except BaseException:
                    pass
            try:
                write(module)
            except BaseException:
                pass
        return super().usage()
