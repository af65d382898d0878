# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/report: what it writes, and how it ends when something is wrong."""

import errno
import io
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import report_input
from reporting import markers, output

MARKED = f"# Title\n\n{markers.BEGIN}\nold\n{markers.END}\n\nafter\n"


def open_when_read(pipe: pathlib.Path) -> io.FileIO:
    """Opens a named pipe as soon as somebody reads it, who then waits for what is never written."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return io.FileIO(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder_owner = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder_owner.cleanup)
        self.folder = pathlib.Path(self.folder_owner.name)

    def run_report(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, report_input.REPORT, *arguments], capture_output=True, text=True, timeout=60,
                              check=False, cwd=self.folder)

    def assert_fails(self, status: int, text: str, *arguments) -> None:
        before = sorted(self.folder.rglob("*"))
        result = self.run_report(*arguments)
        self.assertEqual(result.returncode, status, result)
        self.assertIn(text, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    @unittest.skipUnless(report_input.HAS_MATPLOTLIB, "no matplotlib")
    def test_makes_all_at_once(self):
        target = self.folder / "page.md"
        target.write_text(MARKED)
        target.chmod(0o640)
        result = self.run_report(report_input.DATA, "--html", "out.html", "--markdown", "--update", target)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((self.folder / "out.html").read_text().startswith("<!DOCTYPE html>"))
        self.assertTrue(result.stdout.startswith("Synthetic processor"))
        self.assertEqual(target.read_text(), MARKED.replace("old\n", result.stdout))
        self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["out.html", "page.md"])

    def test_wrong_command_lines(self):
        self.assert_fails(2, "usage: perf/report")
        self.assert_fails(2, "nothing to make: give --html", report_input.DATA)
        self.assert_fails(2, "unrecognized arguments: --pdf", report_input.DATA, "--pdf")
        self.assert_fails(2, "--html", report_input.DATA, "--html")

    def test_wrong_files(self):
        self.assert_fails(1, "perf/report: absent.json: No such file", "absent.json", "--markdown")
        self.assert_fails(1, "README.md: is not JSON", report_input.ROOT / "README.md", "--markdown")
        self.assert_fails(1, "absent.md", report_input.DATA, "--update", "absent.md")
        if report_input.HAS_MATPLOTLIB:
            self.assert_fails(1, "absent/out.html", report_input.DATA, "--html", "absent/out.html")

    def test_a_page_without_markers_stays_and_nothing_else_is_written(self):
        target = self.folder / "page.md"
        target.write_text("# Title\n")
        self.assert_fails(1, "needs the line <!-- compare:begin -->", report_input.DATA, "--update", target,
                          "--html", "out.html")
        self.assertEqual(target.read_text(), "# Title\n")

    def test_a_link_stays_a_link(self):
        target = self.folder / "real.md"
        target.write_text(MARKED)
        (self.folder / "link.md").symlink_to("real.md")
        self.assertEqual(self.run_report(report_input.DATA, "--update", "link.md").returncode, 0)
        self.assertTrue((self.folder / "link.md").is_symlink())
        self.assertIn("Synthetic", target.read_text())

    @unittest.skipUnless(report_input.HAS_MATPLOTLIB, "no matplotlib")
    def test_writes_to_what_is_no_file(self):
        result = self.run_report(report_input.DATA, "--html", "/dev/stdout")
        self.assertEqual(result.returncode, 0, result)
        self.assertTrue(result.stdout.startswith("<!DOCTYPE html>"))

    @unittest.skipUnless(report_input.HAS_MATPLOTLIB, "no matplotlib")
    def test_says_that_its_reader_has_left(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            for output_options in (["--markdown"], ["--html", "/dev/stdout"]):
                result = subprocess.run([sys.executable, report_input.REPORT, report_input.DATA, *output_options], stdout=writer,
                                        stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                self.assertEqual((result.returncode, result.stderr),
                                 (1, "perf/report: output pipe was closed\n"))
        finally:
            os.close(writer)

    def test_without_matplotlib_there_are_tables(self):
        program = (f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(report_input.ROOT / 'perf' / 'studies')!r});"
                   "sys.modules['matplotlib'] = None\nfrom reporting import program; sys.exit(program.main(sys.argv[1:]))")
        for option, status in (["--markdown"], 0), (["--html", "out.html"], 77):
            result = subprocess.run([sys.executable, "-c", program, report_input.DATA, *option], capture_output=True,
                                    text=True, timeout=60, check=False, cwd=self.folder)
            self.assertEqual(result.returncode, status, result)
            self.assertEqual("python3-matplotlib" in result.stderr, status == 77, result)
            self.assertLessEqual(result.stderr.count("\n"), 1)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_signals_end_it_while_it_waits(self):
        source = self.folder / "compare.json"
        os.mkfifo(source)  # reading it waits for somebody to write
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = subprocess.Popen([sys.executable, report_input.REPORT, source, "--html", self.folder / "out.html"],
                                       stderr=subprocess.PIPE, text=True)
            try:
                with open_when_read(source):
                    process.send_signal(number)
                    _, stderr = process.communicate(timeout=30)
            finally:
                process.kill()
                process.wait()
            self.assertEqual((process.returncode, stderr), (-number, ""))
        self.assertEqual(list(self.folder.iterdir()), [source])

    @unittest.skipUnless(report_input.HAS_MATPLOTLIB, "no matplotlib")
    def test_leaves_no_code_in_the_source_tree(self):
        package = report_input.ROOT / "perf" / "studies" / "reporting"
        shutil.copytree(package, self.folder / "studies" / "reporting", ignore=shutil.ignore_patterns("__pycache__"))
        report = shutil.copy(report_input.REPORT, self.folder)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run([sys.executable, report, report_input.DATA, "--html", "out.html"], check=True, timeout=60,
                       cwd=self.folder, env=environment)
        self.assertEqual(list(self.folder.rglob("__pycache__")), [])


class OutputTest(unittest.TestCase):
    def test_an_end_in_the_middle_leaves_the_old_file_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "out.html"
            target.write_text("old")
            for error in (OSError("no space"), SystemExit(143), KeyboardInterrupt()):
                with unittest.mock.patch("os.replace", side_effect=error):
                    with self.assertRaises(type(error)):
                        output.write(target, "new")
                self.assertEqual(list(pathlib.Path(folder).iterdir()), [target])
                self.assertEqual(target.read_text(), "old")

    @unittest.skipUnless(report_input.HAS_MATPLOTLIB, "no matplotlib")
    def test_a_signal_in_the_middle_is_cleaned_up_after(self):
        program = f"""
import os, pathlib, sys, time
sys.path.insert(0, {str(report_input.ROOT / "perf" / "studies")!r})
from reporting import output, program
os.replace = lambda *names: (os.kill(os.getpid(), int(sys.argv[1])), time.sleep(30))
sys.exit(program.main([{str(report_input.DATA)!r}, "--html", "out.html"]))
"""
        with tempfile.TemporaryDirectory() as folder:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                result = subprocess.run([sys.executable, "-B", "-c", program, str(int(number))], cwd=folder,
                                        capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((result.returncode, result.stderr), (-number, ""))
                self.assertEqual(os.listdir(folder), [])

    def test_new_files_have_the_usual_rights(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "out.html"
            before = os.umask(0o027)
            try:
                output.write(target, "new")
                self.assertEqual(os.umask(0o027), 0o027)
            finally:
                os.umask(before)
            self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)


if __name__ == "__main__":
    unittest.main()
