"""Has attributes that never end, one that is another each time, and one that sleeps."""

import time


class Endless:
    @property
    def users(self):
        while True:
            pass


class Shelf(Shelf):
    @property
    def names(self):
        time.sleep(0.2)
        return {str(time.time()): self.boxes[0]}

    @names.setter
    def names(self, value):
        pass

    def usage(self):
        self.boxes.append(Endless())
