"""Before a student's file is blamed: does the compiler here compile anything?"""

from __future__ import annotations

from grader.build.foreign import TELL, foreign_files
from grader.build.project import CProject
from grader.errors import DriverError
from grader.sandbox import COMPILE_LIMITS, workspace

__all__ = ["check_compiler"]

_HEADERS = ("assert", "errno", "limits", "math", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string")

_found_well: set[tuple[str, ...]] = set()


def check_compiler(project: CProject) -> None:
    """Raise `DriverError` when gcc cannot compile an innocent file under the same protection: then it is our fault.

    So it is where gcc lies in a place that the sandbox does not know. Asked once for each command, when something
    did not compile.
    """
    if project.compile_command in _found_well:
        return
    source = "".join(f"#include <{header}.h>\n" for header in _HEADERS) + f'#include "{project.header.name}"\n'
    with workspace() as work:
        work.add(project.source_name, source.encode())
        work.add(project.header.name, project.header.read_bytes())
        done = work.run([*project.compile_command, *TELL], limits=COMPILE_LIMITS)
        elsewhere = foreign_files(work)
    if not done.succeeded:
        said = done.stderr.decode(errors="replace").strip()[:2000]
        raise DriverError(f"gcc does not even compile a file with nothing but headers here; nobody is graded:\n{said}")
    if elsewhere:
        raise DriverError(
            f"gcc takes its own headers from {elsewhere[0]}, where no submission may read; put a gcc on /usr/bin or "
            "/usr/local/bin whose files lie beside it"
        )
    _found_well.add(project.compile_command)
