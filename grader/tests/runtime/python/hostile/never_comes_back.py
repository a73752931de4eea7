"""Never comes back, and catches whatever interrupts it."""

class Shelf(Shelf):
    def usage(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
