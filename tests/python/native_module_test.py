# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The generated module is what a C compiler makes of the headers: native_module_test.py NATIVE_CHECK"""

import ctypes
import subprocess
import sys
import unittest

import onebit
from onebit import _native, _structures

CHECK = sys.argv.pop(1)


class NativeModuleTest(unittest.TestCase):
    def test_agrees_with_the_compiler(self):
        output = subprocess.run([CHECK], check=True, capture_output=True, text=True).stdout
        compared = 0
        for line in output.splitlines():
            expression, value = line.split()
            found = eval(expression, vars(_native))  # pylint: disable=eval-used
            expected = type(found)(value)
            if isinstance(found, int) and found > 2**63:  # the program prints it as signed
                expected %= 2**64
            self.assertEqual(found, expected, expression)
            compared += 1
        self.assertGreater(compared, 400)

    def test_initial_structures_are_those_of_the_library(self):
        structures = [
            each
            for each in vars(_native).values()
            if isinstance(each, type) and getattr(each, "KIND", None) is not None
        ]
        self.assertEqual({each.KIND for each in structures}, set(_native.Struct))
        for structure in structures:
            with self.subTest(structure.__name__):
                self.assertEqual(_structures.new(structure).size, ctypes.sizeof(structure))
        config = _structures.new(_native.CompressorConfig)
        self.assertEqual(
            (config.magic, config.version, config.block, config.tensorId),
            (
                _native.ONEBIT_CONFIG_MAGIC,
                _native.ONEBIT_VERSION_CODE,
                _native.ONEBIT_UNDEF_INT,
                -1,
            ),
        )

    def test_options_have_python_names(self):
        config = _structures.configured(
            _native.CompressorConfig, {"codec": "FP4", "tensor_id": 3, "block": None}
        )
        self.assertEqual(
            (config.codec, config.tensorId, config.block),
            (onebit.Codec.FP4, 3, _native.ONEBIT_UNDEF_INT),
        )
        with self.assertRaisesRegex(
            TypeError, "no option 'blok'; the options are: mode, collective, scale_rule"
        ):
            _structures.configured(_native.CompressorConfig, {"blok": 64})
        with self.assertRaisesRegex(onebit.InvalidArgument, "'fp3' is not a Codec: use one of sign, fp4"):
            onebit.Codec.of("fp3")
        with self.assertRaisesRegex(ValueError, "True is not a Codec"):  # not the codec of number 1
            onebit.Codec.of(True)

    def test_each_option_of_c_is_one_of_python(self):
        for given, structure in (
            (onebit.Config.__dataclass_fields__, _native.Config),
            (onebit.Compressor.__init__.__kwdefaults__, _native.CompressorConfig),
        ):
            members = {_structures.python_name(name) for name, *_ in structure._fields_}
            self.assertEqual(set(given), members - {"size", "magic", "version", "cut_count"})

    def test_import_error_says_what_was_tried(self):
        for library, text in (
            ("/nonexistent/libonebit.so", "ONEBIT_LIBRARY names it.*/nonexistent/libonebit.so"),
            (None, "onebit/lib/libonebit.so.0.*libonebit.so.0: cannot open.*set ONEBIT_LIBRARY"),
        ):
            environment = {"PYTHONPATH": ":".join(sys.path)}
            if library:
                environment["ONEBIT_LIBRARY"] = library
            result = subprocess.run(
                [sys.executable, "-B", "-c", "import onebit"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertRegex(result.stderr, f"ImportError: cannot load libonebit .*{text}")


if __name__ == "__main__":
    unittest.main()
