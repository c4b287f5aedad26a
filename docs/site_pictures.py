"""Looks at the site that make docs has built, as a reader does, and takes the pictures of it that the documents have.

Every page is opened in headless Chromium at both widths. A page that is wider than its window, an image that is not there and a
drawing that Mermaid refuses are errors. Usage: site_pictures.py SITE FOLDER; without FOLDER no pictures are taken.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDE, NARROW = (1280, 800), (390, 780)
# The pictures: page, size, scheme of colours.
PICTURES = {
    "site-home.png": ("index.html", WIDE, "light"),
    "site-home-narrow.png": ("index.html", NARROW, "light"),
    "site-guide-dark.png": ("guide/one-program.html", WIDE, "dark"),
    "site-figures-narrow.png": ("MEASUREMENTS.html", NARROW, "light"),
}
LARGEST = 150_000  # bytes of a picture
PLAYED = 13  # seconds until docs/img/terminal.svg has shown all its lines: media features are not emulated in an image

SETTLED = """document.readyState == 'complete' && !document.querySelector('pre.mermaid')
    && [...document.images].every(i => i.complete)"""
PROBLEMS = """[
    ...(document.documentElement.scrollWidth > innerWidth ? [`it is ${document.documentElement.scrollWidth} px wide`] : []),
    ...[...document.images].filter(i => !i.naturalWidth).map(i => `no image ${i.getAttribute('src')}`),
    ...[...document.querySelectorAll('div.mermaid')].filter(d => d.clientHeight < 50).map(d => 'a drawing is empty'),
]"""


class Browser:
    """Headless Chromium, which is told what to do by a pair of pipes."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.answers, from_write = os.pipe()
        # Chromium reads its descriptor 3 and writes 4, which bash gives it.
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                   "--force-color-profile=srgb", f"--user-data-dir={folder}", "about:blank"]
        self.program = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", *command],
                                        pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest, self.session = 0, b"", None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.answers, 1 << 20)
                if not more:
                    sys.exit("chromium has ended")
                self.rest += more
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def open(self, page, size, scheme):
        width, height = size
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.ask("Page.navigate", url=page.as_uri())
        until = time.monotonic() + 15
        while self.value("location.href") != page.as_uri() or not self.value(SETTLED):
            if time.monotonic() > until:
                return ["it is not ready after 15 s"]
            time.sleep(0.02)
        return self.value(PROBLEMS)

    def picture(self):
        plays = self.value("[...document.images].some(i => i.src.endsWith('/terminal.svg'))")
        time.sleep(PLAYED if plays else 0.3)  # 0.3: until the page has found its place
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"])

    def end(self):
        self.session = None
        self.ask("Browser.close")
        self.program.wait(10)


def main(site, folder=None):
    profile = tempfile.mkdtemp(prefix="netnice-site-")
    browser = Browser(profile)
    problems, opened = [], 0
    try:
        for page in sorted(site.rglob("*.html")):
            for size in (WIDE, NARROW):
                opened += 1
                for problem in browser.open(page, size, "light"):
                    problems.append(f"{page.relative_to(site)} at {size[0]} px: {problem}")
        for name, (page, size, scheme) in PICTURES.items() if folder else ():
            browser.open(site / page, size, scheme)
            text = browser.picture()
            if len(text) > LARGEST:
                problems.append(f"{name} has {len(text)} bytes")
            (folder / name).write_bytes(text)
        browser.end()
    finally:
        if browser.program.poll() is None:
            browser.program.kill()
        shutil.rmtree(profile, ignore_errors=True)
    print(f"{opened} times a page was opened, {len(problems)} problems")
    if problems:
        sys.exit("\n".join(problems))


main(*(Path(a).resolve() for a in sys.argv[1:]))
