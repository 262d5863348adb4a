"""tools/check and tools/quickstart with missing packages, with stand-ins for dpkg-query,
apt-get, id and sudo."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bash", "dirname", "env", "grep", "awk", "sh", "touch"):
            os.symlink(shutil.which(name), self.folder / name)

    def stand_in(self, name, script):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script + "\n")
        path.chmod(0o755)

    def run_tool(self):
        # Stops after the installation.
        done = subprocess.run(
            ["bash", "-c", f'set -u; tool=tools/check; . "{ROOT}/tools/common.sh"; install_packages; echo ready'],
            env={"PATH": str(self.folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def debian(self, missing):
        # The last argument is the package.
        self.stand_in("dpkg-query", "for last; do :; done\n"
                      f"case ' {missing} ' in *\" $last \"*) [ -e {self.folder}/done ] || exit 1;; esac\n"
                      "echo installed")
        self.stand_in("apt-get", f'echo "$@" >> {self.folder}/calls\n'
                      f'[ "$1" = install ] && touch {self.folder}/done; exit 0')

    def test_nothing_missing(self):
        self.debian("")
        self.assertEqual(self.run_tool(), (0, "ready\n", ""))
        self.assertFalse((self.folder / "calls").exists(), "apt-get was called")

    def test_root_installs_only_what_is_missing(self):
        self.debian("clang-22 cmake")
        self.stand_in("id", "echo 0")
        code, output, _ = self.run_tool()
        self.assertEqual(code, 0, output)
        self.assertTrue(output.endswith("ready\n"))
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(calls, ["update -q", "install -q -y --no-install-recommends cmake clang-22"])

    def test_neither_root_nor_sudo(self):
        self.debian("clang-22")
        self.stand_in("id", "echo 1000")
        code, output, error = self.run_tool()
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("apt-get install --no-install-recommends clang-22", error)

    def test_apt_fails(self):
        self.debian("clang-22")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", '[ "$1" = update ]')
        code, output, error = self.run_tool()
        self.assertEqual(code, 2)
        self.assertNotIn("ready", output)
        self.assertIn("clang-22", error)

    def test_another_system(self):
        code, output, error = self.run_tool()
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("not Debian", error)


if __name__ == "__main__":
    unittest.main()
