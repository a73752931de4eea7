"""Waits for a lock, a descriptor, and a signal that never come."""

import select
import threading


class Shelf(Shelf):
    def usage(self):
        try:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        finally:
            select.select([], [], [], 1000)
