"""Patches whatever is left in sys.modules, and empties it."""

import sys

for name, module in list(sys.modules.items()):
    if name in ("plain", "program", "modules", "cage", "play", "__main__"):
        vars(module).clear()
sys.modules.clear()
