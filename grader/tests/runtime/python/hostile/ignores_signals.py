"""Ignores the signals by which it is asked and ended, and sends them to itself."""

import signal


class Shelf(Shelf):
    def usage(self):
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_IGN)
            except BaseException:
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        while True:
            pass
