"""Has itself signalled all the time."""

import signal


class Shelf(Shelf):
    def usage(self):
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        signal.setitimer(signal.ITIMER_PROF, 0.0001, 0.0001)
        while True:
            pass
