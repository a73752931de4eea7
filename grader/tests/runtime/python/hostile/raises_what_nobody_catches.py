"""Raises SystemExit, KeyboardInterrupt and GeneratorExit, one in another."""

class Shelf(Shelf):
    def usage(self):
        try:
            raise SystemExit(0)
        except SystemExit:
            try:
                raise KeyboardInterrupt
            finally:
                raise GeneratorExit
