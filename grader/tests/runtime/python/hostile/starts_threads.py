"""Starts threads that go on after each call."""

import _thread
import concurrent.futures
import threading
import time


def endless():
    while True:
        time.sleep(0.001)
        Shelf.usage = lambda self: 0


for attempt in (
    lambda: _thread.start_new_thread(endless, ()),
    lambda: threading.Thread(target=endless).start(),
    lambda: concurrent.futures.ThreadPoolExecutor().submit(endless),
    lambda: threading.Timer(0.01, endless).start(),
):
    try:
        attempt()
    except BaseException:
        pass
