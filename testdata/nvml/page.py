"""The page of `tonnage watch --web` in a headless Chromium, at two widths: it draws, moves on, fits, and runs nothing of
what processes are called.

    python testdata/nvml/page.py target/release/tonnage [FOLDER FOR PICTURES]

Needs `chromium` on the path and nothing else. Ends with 1 at the first thing that is wrong.
"""

import base64
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30
EVIL = "<img src=x onerror='window.harmed=1'><script>window.harmed=2</script>\x1b[31m\u202e"
WIDTHS = {"desk": (1280, 900, False), "phone": (390, 844, True)}

SEEN = """(() => {
  const paths = [...document.querySelectorAll('svg path.series')].map((path) => path.getAttribute('d').length);
  const text = document.body.innerText;
  const smallest = Math.min(...[...document.querySelectorAll('p,span,b,small,h1,h2')]
    .map((each) => parseFloat(getComputedStyle(each).fontSize)));
  const inline = document.createElement('script');
  inline.textContent = 'window.harmed = 3';
  document.body.append(inline);
  inline.remove();
  return JSON.stringify({
    devices: document.querySelectorAll('main section').length, paths, predicted: document.querySelectorAll('svg line.predicted').length,
    processes: document.querySelectorAll('ul.processes li').length, wide: document.documentElement.scrollWidth - innerWidth,
    smallest, harmed: window.harmed ?? null, foreign: document.querySelectorAll('img,iframe,main script').length,
    evil: text.includes('<img src=x onerror'), control: /[\\u001b\\u202e]/.test(text), alerts: document.querySelectorAll('#alerts li').length,
  });
})()"""


def script():
    """Two processes of a job and a neighbour, for ten minutes."""
    names = {"job": EVIL, "user": EVIL, "command": EVIL, "name": EVIL}
    lines = [{"driver": "580.95.05", "cuda": 13000}]
    for second in range(0, 600, 2):
        processes = [{"pid": 4000 + i, "used": (4 + i) * GIB + second * (8 << 20), "sm": 40, **names} for i in range(3)]
        for device in range(2):
            lines.append({"t": second, "device": device, "name": "NVIDIA L40S", "total": 48305799168, "reserved": 482344960,
                          "temperature": 60, "power": 250, "power_limit": 350, "utilization": 90, "processes": processes if device == 0 else []})
    return "".join(json.dumps(line) + "\n" for line in lines)


class Browser:
    """Chromium's debugging protocol, over a web socket written by hand."""

    def __init__(self, folder):
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = int(wait_for(lambda: open(os.path.join(folder, "DevToolsActivePort"), encoding="utf-8").read().split()[0]))
        pages = wait_for(lambda: [page for page in get(port, "/json") if page["type"] == "page"] or None)
        path = pages[0]["webSocketDebuggerUrl"].split("/", 3)[3]
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.stream = self.socket.makefile("rb")
        while self.stream.readline() not in (b"\r\n", b""):
            pass
        self.number, self.complaints = 0, []

    def ask(self, method, **params):
        self.number += 1
        data = json.dumps({"id": self.number, "method": method, "params": params}).encode()
        # The mask of zeros leaves the text as it is.
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(b"\x81" + length + bytes(4) + data)
        while True:
            message = self.receive()
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(message["params"])
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def receive(self):
        text = b""
        while True:
            first, length = self.stream.read(2)
            length &= 0x7F
            if length == 126:
                length = struct.unpack(">H", self.stream.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.stream.read(8))[0]
            text += self.stream.read(length)
            if first & 0x80:
                return json.loads(text)

    def evaluate(self, expression):
        return json.loads(self.ask("Runtime.evaluate", expression=expression)["result"]["value"])


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def wait_for(found):
    for _ in range(200):
        try:
            value = found()
        except (OSError, IndexError):
            value = None
        if value is not None:
            return value
        time.sleep(0.05)
    raise TimeoutError


def look(browser, name, address, folder):
    width, height, mobile = WIDTHS[name]
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
    browser.complaints.clear()
    browser.ask("Page.navigate", url=f"http://{address}/")
    time.sleep(3)
    first = browser.evaluate(SEEN)
    time.sleep(2)
    seen = browser.evaluate(SEEN)
    picture = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
    with open(os.path.join(folder, f"{name}.png"), "wb") as file:
        file.write(base64.b64decode(picture))
    assert seen["devices"] == 2 and seen["processes"] == 3 and seen["predicted"] >= 1, seen
    assert sum(seen["paths"]) > sum(first["paths"]) > 100, f"the plots stand still: {first['paths']}, {seen['paths']}"
    assert seen["wide"] <= 0, f"{seen['wide']} pixels wider than the screen"
    assert seen["smallest"] >= 12, f"text of {seen['smallest']} pixels"
    assert seen["evil"] and not seen["control"] and seen["harmed"] is None and seen["foreign"] == 0, seen
    # The script that was put in by this test itself must have been refused, and nothing else went wrong.
    others = [each for each in browser.complaints if "Content Security Policy" not in json.dumps(each)]
    assert len(browser.complaints) > len(others) == 0, browser.complaints
    print(f"{name}: {width} x {height}, {seen['devices']} devices, {len(seen['paths'])} lines, {seen['alerts']} alerts, nothing run, nothing wider")


def main():
    binary = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    profile = tempfile.mkdtemp()
    recording = os.path.join(profile, "script.jsonl")
    with open(recording, "w", encoding="utf-8") as file:
        file.write(script())
    command = [binary, "watch", "gpt2", "-b8", "--replay", recording, "--speed", "10", "--web", "127.0.0.1:0"]
    server, browser = subprocess.Popen(command, stderr=subprocess.PIPE, text=True), None
    try:
        address = server.stderr.readline().split("http://")[1].rstrip("/\n")
        browser = Browser(os.path.join(profile, "browser"))
        for domain in ("Page", "Runtime", "Log"):
            browser.ask(f"{domain}.enable")
        for name in WIDTHS:
            look(browser, name, address, folder)
    finally:
        server.kill()
        if browser:
            browser.process.kill()
            browser.process.wait()
        shutil.rmtree(profile, ignore_errors=True)


if __name__ == "__main__":
    main()
