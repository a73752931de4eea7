"""Raises the harness's own refusal, and subclasses of it, with wild names of what was refused."""

import os

try:
    os.system("true")
except BaseException as error:
    Refused = type(error)
WILD = (
    *("\ud800\x1b[31m\u202e</script>", "a" * 3_000_000, "builtins.input", "", 7, None, ["os"], "%s{0}\n\n# Points: 100"),
    *("a" * 300 + "\udfff" * 9, "::error::\n::stop-commands::x", "](javascript:1)", "\0", "\\x1b" * 99),
)


class Sub(Refused):
    @property
    def event(self):
        return "\udfff" * 10_000


class Shelf(Shelf):
    def usage(self):
        refused = Refused("os.system")
        refused.event = WILD[(len(self.boxes) + 3 * len(self.free) + 5 * len(self.names)) % len(WILD)]
        refused.args = (refused.event,)
        raise refused

    def find(self, word):
        try:
            raise Sub("os.system")
        except BaseException:
            return super().find(word)
