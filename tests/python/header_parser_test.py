# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The header parser knows the forms of our headers and refuses others: header_parser_test.py FOLDER"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import generate  # noqa: E402
import header_parser  # noqa: E402

GUARD = "#ifndef ONEBIT_H_\n#define ONEBIT_H_\n{}\n#endif /* ONEBIT_H_ */\n"


def parse(text: str) -> header_parser.Api:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "onebit.h").write_text(GUARD.format(text), encoding="utf-8")
        return header_parser.parse_headers(pathlib.Path(folder), "onebit.h")


class HeaderParserTest(unittest.TestCase):
    def test_knows_the_forms_of_our_headers(self):
        api = parse("""
            #include <stddef.h>
            #define ONEBIT_BITS 3
            #define ONEBIT_LEAST (-ONEBIT_BITS)
            #define ONEBIT_MASK 0x10u
            #ifdef __cplusplus
            extern "C" {
            #endif
            typedef enum { /* a comment; with a semicolon */
              onebitKindFirst = 0,
              onebitKindTwoWords = -7 // another
            } onebitKind_t;
            typedef struct onebitThing_s* onebitThing_t;
            typedef struct {
              size_t size;
              const char* name;
              char bytes[16];
            } onebitFacts_t;
            typedef int (*onebitVisit_t)(void* argument);
            ONEBIT_API onebitKind_t onebitLook(const onebitFacts_t* facts, onebitThing_t* thing,
                                               const void* data, onebitVisit_t visit);
            ONEBIT_API int onebitCount(void);
            """)
        self.assertEqual(api.constants, {"ONEBIT_BITS": 3, "ONEBIT_LEAST": -3, "ONEBIT_MASK": 16})
        self.assertEqual(api.enums[0].members, (("onebitKindFirst", 0), ("onebitKindTwoWords", -7)))
        self.assertEqual(api.handles, ["onebitThing_t"])
        self.assertEqual(
            [(each.type.text, each.name, each.array_length) for each in api.structs[0].members],
            [("size_t", "size", None), ("const char*", "name", None), ("char", "bytes", 16)],
        )
        self.assertEqual(api.callbacks[0].name, "onebitVisit_t")
        self.assertEqual(
            [each.type.text for each in api.functions[0].parameters],
            ["const onebitFacts_t*", "onebitThing_t*", "const void*", "onebitVisit_t"],
        )
        self.assertEqual(api.functions[1].parameters, ())
        self.assertEqual(
            generate.member_names(api.enums[0]),
            [("onebitKindFirst", "FIRST", 0), ("onebitKindTwoWords", "TWO_WORDS", -7)],
        )

    def test_refuses_other_forms_with_the_line(self):
        for text in (
            "typedef union { int a; } onebitEither_t;",
            "typedef enum { onebitKindFirst } onebitKind_t;",
            "typedef struct { int (*visit)(void); } onebitTable_t;",
            "typedef struct { unsigned int flags; } onebitFacts_t;",
            "typedef struct { int bits : 3; } onebitFacts_t;",
            "typedef struct { int a, b; } onebitFacts_t;",
            "static inline int onebitCount(void) { return 3; }",
            "int onebitCount(void);",
            "ONEBIT_API int onebitCount(int);",
            "ONEBIT_API int onebitPrint(const char* format, ...);",
            "#define ONEBIT_MAX(a, b) a",
            "#define ONEBIT_SIZE sizeof(int)",
            "#define ONEBIT_ODD",
            "#if ONEBIT_BITS\n#endif",
            "#ifdef ONEBIT_BITS\n#endif",
            "#ifdef __cplusplus",
            "#endif\n#endif",
            "#pragma pack(1)",
            "#include <stdio.h>",
        ):
            with self.subTest(text), self.assertRaises(header_parser.HeaderError) as raised:
                parse(text)
            self.assertRegex(str(raised.exception), r"onebit\.h:\d+: ", text)

    def test_generator_refuses_types_that_it_does_not_know(self):
        for text in (
            "typedef struct { long count; } onebitFacts_t;",
            "ONEBIT_API int onebitTake(onebitThing_t thing);",
            "typedef struct { size_t size; } onebitFacts_t;",
        ):  # onebitStructInit lacks it
            with self.subTest(text), self.assertRaises(header_parser.HeaderError):
                list(generate.module_lines(parse(text)))


if __name__ == "__main__":
    unittest.main()
