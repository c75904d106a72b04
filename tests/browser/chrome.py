"""Headless Chromium over its DevTools socket: as much of it as the page's tests need, and no driver in between."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # containers have no user namespaces
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-port=0",
)
# A microphone that hears a WAV file once, from the moment it is opened, and a person who allows it.
MICROPHONE = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--use-file-for-fake-audio-capture={path}%noloop")
START_S = 90.0
CALL_S = 60.0
PATIENCE_S = 60.0  # waiting ends early; two busy cores have a browser and two gateways to run


def find() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium(binary: str, *flags: str) -> Iterator[Page]:
    """A fresh browser with one page; it is ended and its profile removed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [binary, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            with connect(_devtools_url(process), max_size=None, proxy=None, open_timeout=START_S) as socket:
                yield Page(socket).attach()
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stderr is not None, "Popen was given a pipe"
            process.stderr.close()


def _devtools_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None, "Popen was given a pipe"
    ends_at = time.monotonic() + START_S
    for line in process.stderr:
        if match := re.search(r"DevTools listening on (ws://\S+)", line):
            return match[1]
        if time.monotonic() > ends_at:
            break
    raise RuntimeError(f"Chromium did not open its DevTools socket within {START_S:.0f} s")


class Page:
    """One tab. `complaints` collects uncaught errors and what stands in the console as an error or a warning."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self._session_id: str | None = None
        self.complaints: list[str] = []

    def attach(self) -> Self:
        """Take the tab that the browser opened with."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target_id = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session_id = self.call("Target.attachToTarget", targetId=target_id, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:  # Any: DevTools' JSON
        """Run a DevTools command. Raises `RuntimeError` with the browser's words."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        self._socket.send(json.dumps(message if self._session_id is None else {**message, "sessionId": self._session_id}))
        while True:
            answer = json.loads(self._socket.recv(timeout=CALL_S))
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
            entry = event["params"]["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert"):
            said = [value.get("value", value.get("description", "")) for value in event["params"]["args"]]
            self.complaints.append(" ".join(map(str, said)))

    def evaluate(self, expression: str) -> Any:  # Any: whatever the expression gives
        """Value of a JavaScript expression, awaited. Raises `RuntimeError` when it throws."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=False)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = PATIENCE_S) -> Any:  # Any: as above
        """The first true value of an expression. Raises `AssertionError` with the last value after `timeout_s`."""
        ends_at = time.monotonic() + timeout_s
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            assert time.monotonic() < ends_at, f"waited {timeout_s} s for {expression}; it is {value!r}; complaints: {self.complaints}"
            time.sleep(0.03)

    def open(self, url: str) -> None:
        """Load a page; its modules have run when a global of theirs is there."""
        self.call("Page.navigate", url=url)

    def type(self, text: str) -> None:
        """Text into the focused field, as typed."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """One key, with the gesture that a real one is."""
        for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
            text = {"text": "\r"} if kind == "char" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def hold_key(self, key: str, code: int) -> None:
        """A key goes down and stays there."""
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", key=key, code=key, windowsVirtualKeyCode=code)

    def release_key(self, key: str, code: int) -> None:
        """It comes up again."""
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def click(self, selector: str) -> None:
        """A mouse click in the middle of the first such element."""
        self.mouse("mousePressed", selector)
        self.mouse("mouseReleased", selector)

    def mouse(self, kind: str, selector: str) -> None:
        """The left button goes down or up ("mousePressed", "mouseReleased") in the middle of the first such element."""
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def look(self, *, width: int = 1200, height: int = 800, is_dark: bool = False, is_phone: bool = False) -> None:
        """Change the window and the color scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        scheme = "dark" if is_dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
