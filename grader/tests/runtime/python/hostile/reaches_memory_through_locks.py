"""Makes locks between processes of addresses in memory, which count up and down there."""

import multiprocessing.synchronize

kinds = [multiprocessing.synchronize._multiprocessing, multiprocessing.synchronize, *object.__subclasses__()]
for kind in kinds:
    for lock in (kind, getattr(kind, "SemLock", None)):
        try:
            values = tuple([1, 2, 3])
            made = lock._rebuild(id(values) + 16, 1, (1 << 31) - 1, None)
            print("hostile: it is in memory", made._get_value())
            made.release()
        except BaseException:
            pass
