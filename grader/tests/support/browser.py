"""Chromium without a window, controlled through two pipes with its DevTools protocol: real clicks and keys.

These hundred lines replace a driver that would have to be installed. `scripts/test` fetches Chromium's headless shell
in CI; without Chromium these tests are skipped, and the last lines of the run say so.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NO_CHROMIUM = "there is no Chromium"
"""The reason for skipped tests; it is printed again at the end of the run."""

_START = "import os, sys; os.dup2({0}, 3); os.dup2({1}, 4); os.execv(sys.argv[1], sys.argv[1:])"
_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, "Enter": 13, " ": 32}


def chromium() -> str | None:
    """Return the path of Chromium, or None when it is not installed."""
    names = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
    return next((path for path in map(shutil.which, names) if path is not None), None)


class Browser:
    """One Chromium with one page, and all complaints (errors, log messages, dialogs, requests) of this page."""

    def __init__(self, path: str, folder: Path) -> None:
        ours, commands = os.pipe()
        answers, theirs = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (ours, theirs)]  # not 3 or 4
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _START.format(*high)),
                *(path, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        for end in (ours, theirs, *high):
            os.close(end)
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._session = ""
        try:
            self._call("Browser.close")
            self._process.wait(20)
        finally:
            self._process.kill()
        self._commands.close()
        self._answers.close()

    def open(self, path: Path) -> None:
        """Show a file, and delete earlier complaints."""
        self.complaints.clear()
        self._call("Page.navigate", url=path.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, in the element that has the focus."""
        for key in keys:
            code = _KEYS.get(key)
            about = {"key": key, "windowsVirtualKeyCode": code} if code else {"key": key, "text": key}
            if key in ("Enter", " "):
                about["text"] = "\r" if key == "Enter" else " "
            self._call("Input.dispatchKeyEvent", type="keyDown", **about)
            self._call("Input.dispatchKeyEvent", type="keyUp", **{**about, "text": ""})

    def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element."""
        place = self.ask(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView();"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def prefer(self, scheme: str) -> None:
        """Set the preferred colour scheme, dark or light."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int) -> None:
        """Set the width of the window; 0 for the usual one."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=0, deviceScaleFactor=0, mobile=False)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        """Return the next message. Complaints are stored; each request for more than the page itself is one."""
        data = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium is gone"
            data += byte
        message: dict[str, Any] = json.loads(data)
        method, told = message.get("method"), message.get("params", {})
        loads = method == "Network.requestWillBeSent" and told["type"] != "Document"
        if loads or method in (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ):
            self.complaints.append(json.dumps(told))
        return message
