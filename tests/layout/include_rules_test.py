# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Proves on small made-up trees that include_rules.py finds what it should, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import include_rules

SCRIPT = pathlib.Path(include_rules.__file__)


class IncludeRulesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for header in ("include/onebit/onebit.h", "include/onebit/transport.h",
                       "include/onebit/optim.h", "kernels/kernels.h", "src/base/status.h",
                       "src/codec/message_header.h", "src/codec/packet.h",
                       "src/plan/plan.h", "src/comm/comm.h",
                       "src/device/devices.h",
                       "plugins/transport_local/ring.h", "plugins/transport_ucx/worker.h",
                       "perf/common/driver.h"):
            self.write(header, "")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def check(self, path, include):
        """The violations of a file `path` whose second line includes `include`."""
        self.write(path, f"// a comment\n#include {include}\n")
        return include_rules.violations(self.root, [path])

    def assert_allowed(self, path, include):
        self.assertEqual(self.check(path, include), [])

    def assert_forbidden(self, path, include, rule):
        found = self.check(path, include)
        self.assertEqual(len(found), 1, f"{path} including {include}")
        self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])
        self.assertIn(rule, found[0])

    def test_a_folder_may_include_downwards_over_several_steps(self):
        self.assert_allowed("src/plan/a.cc", '"plan/plan.h"')
        self.assert_allowed("src/plan/a.cc", '"codec/packet.h"')
        self.assert_allowed("src/plan/a.cc", '"kernels/kernels.h"')
        self.assert_allowed("src/api/a.cc", '"onebit/onebit.h"')

    def test_no_folder_may_include_upwards(self):
        self.assert_forbidden("src/codec/a.cc", '"plan/plan.h"', "src/codec may include")
        self.assert_forbidden("src/comm/a.cc", '"codec/packet.h"', "src/comm may include")
        self.assert_allowed("src/comm/record_ring.h", '"codec/message_header.h"')
        self.assert_forbidden("src/comm/record_ring.h", '"codec/packet.h"', "src/comm may")
        self.assert_forbidden("src/comm/control.h", '"codec/message_header.h"', "src/comm may")
        self.assert_forbidden("kernels/cpu/a.cc", '"base/status.h"', "no other folder")
        self.assert_forbidden("src/base/a.cc", '"kernels/kernels.h"', "src/base may include src/wait")

    def test_the_device_plugin_sees_the_device_abi_and_the_kernels(self):
        for header in ("src/device/device_abi.h", "kernels/cuda/params.h"):
            self.write(header, "")
        self.assert_allowed("plugins/device_cuda/a.cc", '"device/device_abi.h"')
        self.assert_allowed("plugins/device_cuda/a.cc", '"kernels/cuda/params.h"')
        self.assert_allowed("plugins/device_cuda/a.cc", "<cuda.h>")
        self.write("plugins/common/cuda_driver.h", "")
        self.assert_allowed("plugins/device_cuda/a.h", '"plugins/common/cuda_driver.h"')
        self.assert_allowed("perf/common/cuda_device.h", '"plugins/common/cuda_driver.h"')
        rule = "plugins/device_cuda sees only "
        self.assert_forbidden("plugins/device_cuda/a.cc", '"base/status.h"', rule + "nothing of src/base")
        self.assert_forbidden("plugins/device_cuda/a.cc", '"onebit/optim.h"', rule)
        self.assert_forbidden("plugins/device_cuda/a.cc", '"device/devices.h"', rule)
        self.assert_forbidden("plugins/transport_local/a.cc", '"device/device_abi.h"', "plugins/transport_* may include")

    def test_a_relative_path_is_no_way_around(self):
        self.assert_forbidden("src/codec/a.cc", '"../comm/comm.h"', "src/codec may include")

    def test_a_transport_sees_the_abi_and_itself(self):
        own = "plugins/transport_local/a.cc"
        self.assert_allowed(own, '"onebit/transport.h"')
        self.assert_allowed(own, "<onebit/onebit.h>")
        self.assert_allowed(own, '"plugins/transport_local/ring.h"')
        self.assert_forbidden(own, '"onebit/optim.h"', "plugins/transport_* sees only ")
        for other in ('"base/status.h"', '"plugins/transport_ucx/worker.h"'):
            self.assert_forbidden(own, other, "plugins/transport_* may include")

    def test_exceptions_are_few_and_needed(self):
        self.write("src/transport/registry.cc", '#include "plugins/transport_local/local_transport.h"')
        self.write("plugins/transport_local/local_transport.h", "")
        self.assertEqual(include_rules.violations(self.root, ["src/transport/registry.cc"]), [])
        found = include_rules.needless_exceptions(self.root, ["src/transport/registry.cc"])
        rows = [row for rows in include_rules.EXCEPTIONS.values() for row in rows]
        self.assertEqual(len(found), len(rows) - 1, found)
        self.assertFalse(any("registry" in line for line in found), found)
        self.assertLessEqual(len(include_rules.EXCEPTIONS), include_rules.MOST_EXCEPTIONS)

    def test_tools_are_clients_but_for_the_checker(self):
        self.assert_allowed("perf/all_reduce_perf.cc", '"perf/common/driver.h"')
        self.assert_allowed("perf/codec_perf.cc", '"kernels/kernels.h"')
        self.assert_forbidden("perf/all_reduce_perf.cc", '"kernels/kernels.h"', "perf may include")
        self.assert_allowed("perf/codec_perf_cuda.cc", '"device/devices.h"')
        self.assert_forbidden("perf/codec_perf.cc", '"device/devices.h"', "perf may include")
        self.assert_forbidden("perf/codec_perf.cc", '"codec/packet.h"', "perf may include")

    def test_libraries_belong_to_folders(self):
        self.assert_allowed("src/comm/a.cc", "<fmt/format.h>")
        self.assert_allowed("src/comm/a.cc", "<sys/mman.h>")
        self.assert_forbidden("src/codec/a.cc", "<mpi.h>", "<mpi.h> is for")
        self.assert_forbidden("src/codec/a.cc", '"hwy/highway.h"', "<hwy> is for kernels")

    def test_tests_may_include_anything(self):
        self.assert_allowed("tests/codec/a_test.cc", '"comm/comm.h"')

    def test_new_folders_and_missing_files_are_pointed_out(self):
        self.assert_forbidden("src/magic/a.cc", '"base/status.h"', "has no rule")
        self.assert_forbidden("src/comm/a.cc", '"comm/gone.h"', "no such file")

    def test_the_script_fails_and_names_the_line(self):
        self.write("src/codec/bad.cc", '\n\n#include "comm/comm.h"\n')
        run = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True,
                             check=False)
        self.assertEqual(run.returncode, 1)
        self.assertTrue(run.stdout.startswith("src/codec/bad.cc:3: "), run.stdout)


if __name__ == "__main__":
    unittest.main()
