"""No include violates the order of the layers, and the script that checks this can fail."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
SCRIPT = os.path.join(ROOT, "tools", "check-layers")


def run(root):
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
    return done.returncode, done.stdout


class Layers(unittest.TestCase):
    def test_this_tree(self):
        code, output = run(ROOT)
        self.assertEqual(code, 0, output)

    def check_one(self, path, line):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w") as file:
                file.write(line + "\n")
            return run(root)

    def test_upward_includes_are_found(self):
        for path, header in [
            ("lib/Dialect/NN/IR/A.cpp", "cleave/Interfaces/B.h"),
            ("lib/Interfaces/A.cpp", "cleave/Dialect/NN/Transforms/B.h"),
            ("include/cleave/Partition/A.h", "cleave/Codegen/B.h"),
            ("lib/Codegen/A.cpp", "cleave/Target/B.h"),
            ("lib/Dialect/NN/IR/A.cpp", "cleave/Dialect/Dist/IR/B.h"),
            ("lib/Config/A.cpp", "cleave/Partition/B.h"),
            ("lib/Interfaces/A.cpp", "cleave/Config/Config.h"),
            ("lib/Partition/A.cpp", "../Memory/B.h"),
            ("runtime/A.cpp", "llvm/ADT/StringRef.h"),
            ("runtime/A.cpp", "mlir/IR/Value.h"),
            ("runtime/A.cpp", "cleave/Config/Config.h"),
            ("tools/cleave-run/A.cpp", "llvm/ADT/StringRef.h"),
            ("lib/Schedule/A.cpp", "cleave/Codegen/B.h"),
            ("lib/Autodiff/A.cpp", "cleave/Partition/B.h"),  # a later phase
            ("lib/Nowhere/A.cpp", "vector"),
        ]:
            with self.subTest(path=path, header=header):
                code, output = self.check_one(path, f'#include "{header}"')
                self.assertEqual(code, 1)
                self.assertIn(f"{path}:1:", output)

    def test_downward_includes_pass(self):
        for path, header in [
            ("lib/Interfaces/A.cpp", "cleave/Dialect/NN/IR/B.h"),
            ("lib/Partition/A.cpp", "cleave/Config/Config.h"),
            ("lib/Target/A.cpp", "cleave/Memory/B.h"),
            ("tools/cleave/A.cpp", "cleave/Target/B.h"),
            ("runtime/A.cpp", "cleave/runtime.h"),
        ]:
            with self.subTest(path=path, header=header):
                code, output = self.check_one(path, f'#include "{header}"')
                self.assertEqual(code, 0, output)

    def test_link_lists_are_compared(self):
        for name, links, words in [
            ("cleaveCompiler", "cleavePartition", ""),
            ("cleaveCompiler", "", "cleaveCompiler includes headers of cleavePartition"),
            ("cleaveCompiler", "cleavePartition cleaveCost", "cleaveCompiler has cleaveCost under LINK"),
            ("cleaveDriver", "cleavePartition", "cleaveDriver is not called as its folder is: cleaveCompiler"),
        ]:
            with self.subTest(links=links), tempfile.TemporaryDirectory() as root:
                for folder, text in [
                    ("lib/Compiler", f"cleave_add_library({name} A.cpp\n  LINK {links})"),
                    ("lib/Partition", "cleave_add_library(cleavePartition B.cpp)"),
                    ("lib/Cost", "cleave_add_library(cleaveCost C.cpp)"),
                ]:
                    os.makedirs(os.path.join(root, folder))
                    with open(os.path.join(root, folder, "CMakeLists.txt"), "w") as file:
                        file.write(text)
                with open(os.path.join(root, "lib/Compiler/A.cpp"), "w") as file:
                    file.write('#include "cleave/Partition/B.h"\n')
                code, output = run(root)
                self.assertEqual(code, 1 if words else 0, output)
                self.assertIn(words, output)


if __name__ == "__main__":
    unittest.main()
