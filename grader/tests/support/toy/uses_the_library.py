"""An honest shelf that uses much of the standard library, which follows honest.py in its file."""

import array, asyncio, bisect, collections, contextlib, copy, dataclasses, datetime, decimal, enum, fractions, functools
import hashlib, heapq, inspect, itertools, json, logging, math, operator, os, pickle, queue, random, re, statistics
import string, struct, sys, textwrap, threading, time, traceback, types, typing, unittest, uuid, warnings, weakref
from abc import ABC, abstractmethod


@dataclasses.dataclass(slots=True, order=True)
class Pair:
    first: int
    second: list = dataclasses.field(default_factory=list)


class Colour(enum.IntFlag):
    RED = enum.auto()
    BLUE = enum.auto()


class Point(typing.NamedTuple):
    x: int
    y: int = 3


class Base(ABC):
    @abstractmethod
    def go(self): ...


class Seen(Base, unittest.TestCase):
    def go(self):
        self.assertEqual(1, 1)


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@contextlib.contextmanager
def around():
    yield threading.Lock()


class Shelf(Shelf):
    def usage(self):
        Pair(1) < Pair(2), Colour.RED | Colour.BLUE, Point(1), Seen().go(), fib(50)
        collections.namedtuple("N", "a b", defaults=[1])(2)
        with around() as lock, lock:
            pass
        copy.deepcopy(self), pickle.loads(pickle.dumps([Pair(1, [2])])), json.loads(json.dumps({"a": [1.5]}))
        random.seed(3), random.random(), random.sample(range(9), 3), random.SystemRandom().random(), uuid.uuid4()
        heapq.heappush([], 1), bisect.insort([], 1), statistics.mean([1, 2]), decimal.Decimal("1.5") / 3, fractions.Fraction(1, 3)
        hashlib.sha256(b"x").hexdigest(), hash("x"), id(self), struct.pack(">I", 1), array.array("i", [1])
        logging.warning("w %s", 1), warnings.warn("deprecated"), textwrap.dedent(" a"), string.Template("$a").substitute(a=1)
        inspect.signature(Shelf.take), inspect.stack()[0].function, traceback.format_stack()
        datetime.datetime.now(), time.time(), time.perf_counter(), time.sleep(0), os.getpid(), os.path.join("a", "b"), os.environ.get("X")
        re.sub("a+", "b", "aaa"), operator.itemgetter(0)([1]), itertools.count(), queue.Queue().put(1), weakref.ref(self)()
        types.SimpleNamespace(a=1), eval("1+1"), exec("a = 1"), compile("1", "x", "eval"), typing.get_type_hints(Point)
        sys.setrecursionlimit(2000), sys.getsizeof(self), sys.getrefcount(self), print("printed"), print("x", file=sys.stderr, flush=True)
        sorted([3, 1], key=functools.cmp_to_key(lambda a, b: a - b)), dataclasses.replace(Pair(1), first=2), dataclasses.asdict(Pair(1))
        try:
            1 / 0
        except ZeroDivisionError:
            traceback.print_exc()
        try:
            open("x")
        except OSError as error:
            print(error)
        return sum(box.users > 0 for box in self.boxes) / len(self.boxes)
