"""What `cmake --install` and cpack write: tools that run from another folder, the packages
that they need, and find_package(cleave) for a pass plugin, a program and a lit suite outside
of the tree."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import BUILD, MODELS, ROOT

OUTSIDE = ROOT / "test" / "installed"


def cached(name):
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.partition("=")[2]
    return ""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A path that stays, for ccache.
        cls.folder = BUILD / "test" / "installed"
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.prefix = cls.folder / "prefix"
        done = run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)

    def ok(self, *command, **options):
        done = run(*command, **options)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_tools_run_from_another_folder(self):
        """Moved, and without the build's folder in what they look for."""
        moved = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, moved)
        shutil.copytree(self.prefix, moved / "cleave", symlinks=True)
        tools = moved / "cleave" / "bin"
        for tool in sorted(tools.iterdir()):
            for word in self.ok("ldd", tool).split():
                self.assertFalse(word.startswith(str(BUILD)), f"{tool.name} needs {word}")
        program = moved / "program"
        self.ok(tools / "cleave", "compile", MODELS / "gpt2.onnx", "--config", MODELS / "gpt2.toml",
                "--set", "mesh.data=2", "-o", program)
        self.assertIn("train", self.ok(tools / "cleave-run", program, "--help"))
        out = self.ok("bash", "-c", f". {moved}/cleave/share/bash-completion/completions/cleave; complete -p cleave")
        self.assertIn("cleave", out)

    def test_archive(self):
        """Unpacked elsewhere, in an empty environment, with the packages that the page lists."""
        made = self.folder / "archive"
        self.ok("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", made)
        [archive] = made.glob("cleave-*-linux.tar.zst")
        away = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, away)
        self.ok("cmake", "-E", "tar", "xf", archive, cwd=away)
        [top] = away.iterdir()
        clean = {"env": {"PATH": "/usr/bin:/bin", "HOME": str(away)}, "cwd": away}
        self.assertRegex(self.ok(top / "bin" / "cleave", "--version", **clean), r"\Acleave \d+\.\d+\.\d+")
        self.ok(top / "bin" / "cleave", "compile", ROOT / "test" / "Inputs" / "mlp.mlir", "--set", "mesh.data=2",
                "-o", "program", **clean)
        self.assertIn("train", self.ok(top / "bin" / "cleave-run", "program", "--help", **clean))

        # MPI is only loaded if a launcher starts the ranks.
        files = [file for part in ("bin", "lib") for file in (top / part).iterdir()
                 if file.is_file() and file.name != "libcleave-mpi.so"]
        needed, found = set(), {}
        for file in files:
            needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", self.ok("readelf", "-d", file)))
            found |= dict(re.findall(r"(\S+) => (/\S+)", self.ok("ldd", file)))
        self.assertIn("libMLIR", "".join(needed))
        packages = set()
        for name in needed:
            path = pathlib.Path(found.get(name, ""))
            if name.startswith("ld-linux") or top in path.parents:
                continue
            self.assertTrue(path.is_absolute(), f"{name} is not found")
            packages.add(self.package_of(path))
        # Every Debian system has these, since apt needs them itself.
        packages -= {"libc6", "libgcc-s1", "libstdc++6"}
        [listed] = re.findall(r"(?m)^    apt install (libmlir.*)$", (ROOT / "docs" / "library.md").read_text())
        listed = set(listed.split())
        self.assertLessEqual(listed - {"lld-22"}, packages)  # lld is a program, which links kernels.so
        depends = self.ok("dpkg-query", "-W", "-f", "${Depends} ", *listed)
        self.assertLessEqual(packages - listed, set(re.findall(r"[a-z0-9.+-]+", depends)))

    def package_of(self, library):
        """The Debian package of a library. (Its path may have links of packages for development.)"""
        for path in (library.resolve(), library, pathlib.Path("/usr") / library.relative_to("/")):
            done = run("dpkg", "-S", path)
            if done.returncode == 0:
                return done.stdout.split(":")[0]
        self.fail(f"{library} is of no package")

    def test_outside_of_the_tree(self):
        """The plugin, the program that compiles GPT-2 and prints its plan, and the suite."""
        build = self.folder / "build"
        launcher = cached("CMAKE_CXX_COMPILER_LAUNCHER")
        self.ok("cmake", "-G", "Ninja", "-S", OUTSIDE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                f"-DCMAKE_CXX_COMPILER={cached('CMAKE_CXX_COMPILER')}",
                f"-DCMAKE_C_COMPILER={cached('CMAKE_C_COMPILER')}",
                f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}")
        self.ok("cmake", "--build", build)
        config = self.folder / "plan.toml"
        config.write_text((MODELS / "gpt2.toml").read_text() + "\n[mesh]\ndata = 2\ntensor = 2\n")
        mine = self.ok(build / "plan", MODELS / "gpt2.onnx", config)
        theirs = self.ok(self.prefix / "bin" / "cleave", "explain", MODELS / "gpt2.onnx", "--config", config)
        self.assertIn("largest at the peak", mine)
        memory = theirs[:theirs.index("communication of a step")]
        self.assertIn(memory[memory.index("parameters"):], mine)
        wrong = run(build / "plan", MODELS / "gpt2.onnx", OUTSIDE / "nothing.toml")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("plan: error: ", wrong.stderr)
        path = os.pathsep.join([str(self.prefix / "bin"), os.environ["PATH"]])
        out = self.ok(cached("CLEAVE_LIT"), "-v", OUTSIDE, "--param", f"path={path}",
                      "--param", f"plugin={build}/libcount-collectives.so", "--param", f"output={build}")
        self.assertIn("Passed: 1", out)


if __name__ == "__main__":
    unittest.main()
