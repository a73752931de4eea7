"""Computes a little and sleeps much, so that it seems to wait for a processor, in every call."""

import time


def seldom():
    while True:
        time.sleep(0.019)
        end = time.perf_counter() + 0.0012
        while time.perf_counter() < end:
            pass


class Shelf(Shelf):
    def take(self, count):
        seldom()

    give = label = find = usage = take
