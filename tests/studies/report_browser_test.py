# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page of perf/report as headless Chromium shows it. Skipped, with status 77, where there is none.

SCREENSHOTS=FOLDER keeps the pictures, to be looked at.
"""

import contextlib
import html
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import report_input
import report_png

report_input.need_matplotlib()

from reporting import page  # noqa: E402  (it takes matplotlib)

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHARTS = 6  # of four groups; break-even and bytes on the wire
LAPTOP, NARROW = 1366, 820
HEIGHT = 1000
DARK = "--blink-settings=preferredColorScheme=0"
WHITE, PAPER_OF_DARK = b"\xff\xff\xff", b"\x16\x18\x1b"
HERE = pathlib.Path(__file__).parent


class Browser:
    """Runs one page at a time, each in a process of its own that a time-out ends for sure."""

    def __init__(self, program: str, folder: pathlib.Path) -> None:
        self._command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                         "--disable-dev-shm-usage", "--no-first-run", "--enable-logging=stderr",
                         f"--user-data-dir={folder / 'profile'}"]

    def run(self, file: pathlib.Path, width: int, *options: str) -> str:
        """Returns the text on stdout. Any message on the page's console is a failure."""
        command = [*self._command, f"--window-size={width},{HEIGHT}", *options, file.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            try:
                stdout, stderr = process.communicate(timeout=60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, stderr
        said = [line for line in stderr.splitlines() if "CONSOLE" in line]
        assert not said, said
        return stdout

    def probe(self, text: str, file: pathlib.Path, width: int) -> dict:
        """Returns what report_probe.js finds in a copy of the page that allows scripts."""
        script = (HERE / "report_probe.js").read_text()
        assert text.count("</body>") == 1 and text.count(page.POLICY.replace("'", "&#x27;")) == 1
        text = text.replace(page.POLICY.replace("'", "&#x27;"), "script-src 'unsafe-inline'")
        file.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
        dom = self.run(file, width, "--dump-dom")
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
        assert found, "the probe did not finish"
        return json.loads(html.unescape(found[1]))


def check_layout(browser: Browser, text: str, folder: pathlib.Path) -> None:
    for width in (LAPTOP, NARROW):
        found = browser.probe(text, folder / "probe.html", width)
        assert found["problems"] == [], found
        assert found["width"] == width and found["shown"] == CHARTS, found
        assert found["texts"] > 10 * CHARTS, found


def check_probe(browser: Browser, text: str, folder: pathlib.Path) -> None:
    """The probe finds the defects it is meant to find."""
    broken = ".chart text { font-size: 30px !important } main { min-width: 3000px }"
    found = browser.probe(text.replace("</style>", f"{broken}</style>"), folder / "probe.html", LAPTOP)
    for problem in ("overlaps", "reaches out of the chart", "the page is 3"):
        assert any(problem in line for line in found["problems"]), (problem, found)


def check_picture(browser: Browser, file: pathlib.Path, picture: pathlib.Path, paper: bytes,
                  *options: str) -> None:
    browser.run(file, LAPTOP, f"--screenshot={picture}", *options)
    counts = report_png.colours(picture)
    total = sum(counts.values())
    assert total == LAPTOP * HEIGHT, total
    assert max(counts, key=counts.get) == paper, counts
    assert 0.5 < counts[paper] / total < 0.97, counts[paper] / total
    assert len(counts) > 200, len(counts)  # edges of texts and lines


def check_console(browser: Browser, file: pathlib.Path) -> None:
    """The page itself: complete, and without a word on the console; a word would be heard."""
    assert browser.run(file, LAPTOP, "--dump-dom").count('<svg class="chart"') == CHARTS
    loud = file.with_name("loud.html")
    loud.write_text("<!DOCTYPE html><script>nothing.of.that.name()</script>")
    try:
        browser.run(loud, LAPTOP, "--dump-dom")
    except AssertionError as error:
        assert "nothing is not defined" in str(error), error
    else:
        raise AssertionError("an error of a script went unheard")


def main() -> int:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)")
        return 77
    keep = os.environ.get("SCREENSHOTS")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        pictures = pathlib.Path(keep) if keep else folder
        browser = Browser(program, folder)
        file = folder / "report.html"
        text = page.page(report_input.figures_of(report_input.document()))
        file.write_text(text)
        check_console(browser, file)
        check_layout(browser, text, folder)
        check_probe(browser, text, folder)
        check_picture(browser, file, pictures / "light.png", WHITE)
        check_picture(browser, file, pictures / "dark.png", PAPER_OF_DARK, DARK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
