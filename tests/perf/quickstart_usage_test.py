# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A folder without tools is refused before anything is written: quickstart_usage_test.py SOURCE_DIR"""

import pathlib
import subprocess
import sys
import tempfile


def main() -> None:
    script = pathlib.Path(sys.argv[1]) / "perf" / "quickstart"
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder) / "quickstart"  # of somebody else
        own.write_text("keep")
        for options, text in [
            (["--build", folder], "has no all_reduce_perf"),
            (["--build", f"{folder}/absent"], "has no all_reduce_perf"),
            (["--build"], "--build needs a folder"),
            (["--fast"], "usage:"),
        ]:
            result = subprocess.run([script, "--quick", "--no-install", *options],
                                    capture_output=True, text=True, timeout=60)
            assert result.returncode == 2 and text in result.stderr, (options, result)
        assert [path.name for path in pathlib.Path(folder).iterdir()] == ["quickstart"]
        assert own.read_text() == "keep"


if __name__ == "__main__":
    main()
