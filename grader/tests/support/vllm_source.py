"""Source files of vLLM 0.22.1 as modules, without torch and without vLLM's other files, for those who compare with it.

vLLM decides on blocks and schedules requests in Python files that need nothing of a GPU, but they import the rest. Here
a finder gives the real files to imports of `REAL`, and a stub to every other import of vLLM, torch or cbor2: whatever
one asks of a stub, it has it, and it does nothing. Nothing of vLLM is kept in this repository; the files come out of
its source archive.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

ARCHIVE = "vllm-0.22.1.tar.gz"
_SHA256 = "cd34902729f3767e3dfbb391956b2986bc638a54be9893e78bda9cc55669f15c"

REAL = (
    "vllm.utils.hashing",
    "vllm.utils.math_utils",
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.sched.interface",
    "vllm.v1.core.sched.output",
    "vllm.v1.core.sched.request_queue",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.utils",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.request",
)
"""The modules whose own files are used."""

_ROOTS = ("vllm", "torch", "cbor2")


class NotTheArchive(Exception):
    """A file is not the source archive of vLLM 0.22.1."""


def unpack(archive: Path, folder: Path) -> None:
    """Put the files of `REAL` into a folder. Raises `NotTheArchive` for any other file."""
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
            raise NotTheArchive(f"{archive.name} is not {ARCHIVE} as vLLM published it: its SHA-256 is another")
    with tarfile.open(archive) as packed:
        for name in REAL:
            path = folder / _path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            file_in_it = packed.extractfile(f"{ARCHIVE.removesuffix('.tar.gz')}/{_path(name)}")
            assert file_in_it is not None
            path.write_bytes(file_in_it.read())


def install(folder: Path) -> None:
    """Let this process import the files in a folder, and stubs. There is no way back: do it in a child process."""
    sys.meta_path.insert(0, _Finder(folder))


def _path(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


class _Finder(MetaPathFinder):
    """Finds all that is vLLM's, or what it needs and we do not have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, _path_of_parent: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _ROOTS:
            return None
        if fullname in REAL:
            return spec_from_file_location(fullname, self._folder / _path(fullname))
        return ModuleSpec(fullname, _StubLoader(), is_package=True)


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Stub


class _Stub(metaclass=_AnyAttribute):
    """A class, function, constant or object of which nothing matters."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __call__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _StubModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NEEDED.get(self.__name__, {}).get(name, _Stub)


class _StubLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


def _length(token_ids: list[int], _embeddings: None) -> int:
    return len(token_ids)


def _same_list(tokens: list[int]) -> list[int]:
    return tokens


def _none(_parameters: object) -> None:
    return None


def _no_record(_name: str) -> AbstractContextManager[None]:
    return nullcontext()


_NEEDED: dict[str, dict[str, object]] = {
    "vllm.utils": {"length_from_prompt_token_ids_or_embeds": _length},
    "vllm.v1.engine": {"EngineCoreOutput": SimpleNamespace, "EngineCoreOutputs": SimpleNamespace},
    "vllm.v1.utils": {"ConstantList": _same_list, "record_function_or_nullcontext": _no_record},
    "vllm.v1.structured_output.request": {"StructuredOutputRequest": SimpleNamespace(from_sampling_params=_none)},
}
"""What a request or a scheduler asks of modules that are stubs, and needs the answer: module, name, value."""
