"""All commands, and the dispatch from the words of a command line to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

from grader import NAME, __version__
from grader.assignment.input_file import suggestion
from grader.cli.guard import guarded
from grader.cli.parser import HELP, Parser
from grader.core.errors import ExitCode, UsageError

COMMANDS = (
    *("run", "cases", "explain", "repro"),
    *("batch", "runs", "show", "export", "regrade", "diff"),
    *("pack", "doctor", "schema", "completion"),
)
"""In the order of the help. Each is a module of this folder, imported when the command is called. The module has a
function of the command's name and, for a command with options or arguments, `options`."""

_TEXT = "Grade paged KV-cache memory managers: what is right, what is wrong, why, and how many points that is."


@guarded
def app(words: Sequence[str]) -> ExitCode:
    """Run a command line. `guarded` turns `UsageError`, and what the command raises, into exit codes."""
    if not words or words[0] in ("-h", "--help"):
        _show_help()
        return ExitCode.ACCEPTED if words else ExitCode.BAD_INPUT
    if words[0] == "--version":
        print(f"{NAME} {__version__}")
        return ExitCode.ACCEPTED
    name = words[0]
    if name not in COMMANDS:
        raise UsageError(f"there is no command '{name}'{suggestion(name, COMMANDS)}; `grade -h` shows them all")
    parser, _ = parser_of(name)
    return _command(name)(**parser.read(words[1:]))


def parser_of(name: str) -> tuple[Parser, str]:
    """Return a command's parser, and the first line of its description."""
    module, text = _module(name), _command(name).__doc__ or ""
    parser = Parser(f"grade {name}", text)
    if hasattr(module, "options"):
        module.options(parser)
    return parser, text.partition("\n")[0]


def _command(name: str) -> Callable[..., ExitCode]:
    command: Callable[..., ExitCode] = getattr(_module(name), name)
    return command


def _module(name: str) -> ModuleType:
    return import_module(f"grader.cli.{name}")


def _show_help() -> None:
    from grader.cli.help import paragraphs, show

    commands = [(name, paragraphs(_command(name).__doc__ or "")[0]) for name in COMMANDS]
    options = [("-h, --help", HELP), ("--version", "Show name and version and exit.")]
    show("grade [OPTIONS] COMMAND [ARGS]...", _TEXT, {"Options": options, "Commands": commands})
