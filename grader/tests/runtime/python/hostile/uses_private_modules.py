"""Uses the library's private modules, for processes, threads, sockets, signals, sessions and memory."""

import os

import_module = __import__("importlib").import_module


def tried(name, attempt):
    try:
        print("hostile: it works", name, attempt(import_module(name)))
    except Exception:
        pass


class Shelf(Shelf):
    def usage(self):
        tried("_posixsubprocess", lambda m: m.fork_exec([b"sleep", b"9"], [b"/bin/sleep"], True, (), None, None,
            -1, -1, -1, -1, -1, -1, -1, -1, False, False, -1, None, None, None, -1, None, False))
        tried("_socket", lambda m: m.socket(m.AF_UNIX, m.SOCK_STREAM))
        tried("_socket", lambda m: m.getprotobyname("tcp"))
        tried("_socket", lambda m: m.if_nameindex())
        tried("_signal", lambda m: m.pidfd_send_signal(3, 9))
        tried("signal", lambda m: m.pthread_kill(os.getppid(), 9))
        tried("_ctypes", lambda m: m.dlopen(None, 0))
        tried("_testcapi", lambda m: m.run_in_subinterp("import os"))
        tried("_testinternalcapi", lambda m: m)
        tried("_xxsubinterpreters", lambda m: m.create())
        tried("_interpreters", lambda m: m.create())
        tried("_tkinter", lambda m: m.create())
        tried("_posixshmem", lambda m: m.shm_unlink("/hostile_mark"))
        tried("_multiprocessing", lambda m: m.sem_unlink("/hostile_mark"))
        tried("_imp", lambda m: m.create_dynamic(m))
        tried("_imp", lambda m: m.get_frozen_object("os", import_module("marshal").dumps(tried.__code__)))
        tried("_thread", lambda m: m.start_new_thread(print, ()))
        tried("faulthandler", lambda m: m.dump_traceback_later(0.001, exit=True))
        tried("resource", lambda m: m.prlimit(os.getppid(), m.RLIMIT_NOFILE, (0, 0)))
        tried("fcntl", lambda m: m.fcntl(1, 0))
        tried("termios", lambda m: m.tcgetattr(0))
        tried("gc", lambda m: len(m.get_objects()))
        tried("mmap", lambda m: m.mmap(-1, 4096))
        tried("pty", lambda m: m.openpty())
        tried("select", lambda m: m.epoll())
        tried("nis", lambda m: m.maps())
        for name in ("getpriority", "login_tty", "setsid", "setns", "unshare", "sched_setaffinity", "sync"):
            before = os.getsid(0)
            tried("os", lambda m, name=name: getattr(m, name)(0, 0) if name.startswith("getp") else getattr(m, name)(0))
            if os.getsid(0) != before:
                print("hostile: a session of its own by", name)
        return super().usage()
