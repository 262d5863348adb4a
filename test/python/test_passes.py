"""Every pass has a manual page with IR before and after, and a test file named
like its flag."""

import re
import unittest

import support

PASS = re.compile(r'^def \w+ *: *Pass<"([\w-]+)"[^{]*\{(.*?)^\}', re.M | re.S)


def passes():
    for path in sorted((support.ROOT / "include" / "cleave").glob("**/*Passes.td")):
        for flag, body in PASS.findall(path.read_text()):
            yield path.relative_to(support.ROOT), flag, body


class Passes(unittest.TestCase):
    def test_manual_page(self):
        self.assertTrue(list(passes()))
        for path, flag, body in passes():
            with self.subTest(file=str(path), name=flag):
                self.assertRegex(body, r'let summary = "[^"]+"')
                self.assertIn("let description = [{", body)
                for word in ("Before", "After", "```mlir"):
                    self.assertTrue(word in body, f"no {word} in the description")

    def test_test_file(self):
        tests = {path.stem for path in (support.ROOT / "test").glob("**/*.mlir")}
        for path, flag, _ in passes():
            with self.subTest(file=str(path), name=flag):
                self.assertIn(flag, tests)


if __name__ == "__main__":
    unittest.main()
