"""The page of `tonnage report` in a headless Chromium, at two widths and in both themes: it fits, it is drawn, nothing in it runs.

    python testdata/experiment/page.py PAGE.html [FOLDER FOR PICTURES]

Needs `chromium` on the path and nothing else; drives it as testdata/nvml/page.py does. Ends with 1 at the first thing that is wrong.
"""

import base64
import importlib.util
import os
import sys
import tempfile
import time

WIDTHS = (400, 1280)
SEEN = """(() => JSON.stringify({
  wide: document.documentElement.scrollWidth - innerWidth,
  figures: [...document.querySelectorAll('figure svg')].map((svg) => svg.getBoundingClientRect().height),
  drawn: document.querySelectorAll('figure svg path, figure svg circle, figure svg rect').length,
  scripts: document.scripts.length, foreign: document.querySelectorAll('img,iframe,object,embed,link[rel=stylesheet]').length,
  harmed: window.harmed ?? null,
  ground: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  smallest: Math.min(...[...document.querySelectorAll('p,li,td,th,h1,h2,h3,summary')].map((each) => parseFloat(getComputedStyle(each).fontSize))),
  focus: document.querySelectorAll('a[href],summary,[tabindex="0"]').length,
}))()"""


def browser_of():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nvml", "page.py")
    spec = importlib.util.spec_from_file_location("nvml_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Browser


def brightness(colour):
    return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])


def main():
    page, pictures = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = browser_of()(folder)
        try:
            for name in ("Page", "Runtime", "Log"):
                browser.ask(f"{name}.enable")
            for width in WIDTHS:
                for theme in ("light", "dark"):
                    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
                    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
                    browser.ask("Page.navigate", url=f"file://{page}")
                    time.sleep(1.0)
                    seen = browser.evaluate(SEEN)
                    look(seen, theme)
                    if pictures:
                        shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": width, "height": 3600, "scale": 1})
                        with open(os.path.join(pictures, f"{width}-{theme}.png"), "wb") as file:
                            file.write(base64.b64decode(shot["data"]))
                    print(f"page at {width} px, {theme}: {seen['drawn']} shapes in {len(seen['figures'])} figures")
            assert not browser.complaints, browser.complaints
        finally:
            browser.process.terminate()
            browser.process.wait()


def look(seen, theme):
    assert seen["wide"] <= 0, f"wider than the window by {seen['wide']} px"
    assert seen["figures"] and min(seen["figures"]) > 50, seen["figures"]
    assert seen["scripts"] == 0 and seen["foreign"] == 0 and seen["harmed"] is None, seen
    assert seen["smallest"] >= 12, seen["smallest"]
    assert seen["focus"] > 5, seen["focus"]
    ground, ink = brightness(seen["ground"]), brightness(seen["ink"])
    assert (ground > ink) == (theme == "light"), (theme, seen["ground"], seen["ink"])
    assert abs(ground - ink) > 400, "too little contrast"


main()
