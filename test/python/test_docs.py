"""The reference pages of docs/ agree with their sources: TableGen files, the table of keys. Links
between pages are valid, and the index lists every page."""

import os
import re
import subprocess
import sys
import unittest

import support


class Docs(unittest.TestCase):
    def test_up_to_date(self):
        done = subprocess.run([sys.executable, os.path.join(support.ROOT, "tools", "gen-docs"), "--check",
                               "--cleave", support.CLEAVE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_picture_has_every_folder(self):
        sys.path.insert(0, str(support.ROOT / "tools" / "lib"))
        import draw_architecture
        self.assertEqual(draw_architecture.FILE.read_text(), draw_architecture.draw())
        lib = support.ROOT / "lib"
        there = {path.name for path in lib.iterdir() if path.is_dir()}
        drawn = draw_architecture.folders()
        self.assertEqual({name.split("/")[0] for name in drawn}, there)
        for name in drawn:
            self.assertTrue((lib / name).is_dir(), name)

    def test_every_key_has_a_line(self):
        """The page lists the same keys as `cleave config`."""
        page = (support.ROOT / "docs" / "configuration.md").read_text()
        listed = set(re.findall(r"^\| `([\w.*]+)` \| [^|]", page.split("## What other")[0], re.M))
        shown = support.succeed(support.CLEAVE, "config")
        names = set(re.findall(r"^(?:# )?([\w.]+)(?: =|  )", shown, re.M))
        self.assertGreater(len(names), 60)
        for name in names:
            self.assertTrue({name, name.rsplit(".", 1)[0] + ".*"} & listed, name)

    def links(self, page):
        """(file, anchor) of each link within the tree."""
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" not in link:
                path, _, anchor = link.partition("#")
                yield ((page.parent / path) if path else page).resolve(), anchor

    def test_links(self):
        pages = [support.ROOT / "README.md", support.ROOT / "CONTRIBUTING.md",
                 *(support.ROOT / "docs").glob("*.md"), *(support.ROOT / "test").glob("*/README.md")]
        count = 0
        for page in pages:
            for target, anchor in self.links(page):
                count += 1
                with self.subTest(page=page.name, target=target.name, anchor=anchor):
                    self.assertTrue(target.exists())
                    if anchor:
                        titles = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
                        self.assertIn(anchor, [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                                               for title in titles])
        self.assertGreater(count, 100)

    def test_paths(self):
        """Files and folders that pages name in backticks exist."""
        tops = "cmake|docs|include|lib|runtime|test|tools"
        count = 0
        for page in [support.ROOT / "README.md", support.ROOT / "CONTRIBUTING.md", *(support.ROOT / "docs").glob("*.md")]:
            for path in re.findall(rf"`((?:{tops})/[\w./*{{}},-]+)`", page.read_text()):
                if path in ("test/Dialect/NN/Transforms/nn-raise-log-sum-exp.mlir", "lib/cmake/cleave"):
                    continue  # a file that the reader writes; a folder of the installation
                for one in re.sub(r"\{([^}]*),[^}]*\}", r"\1", path).split():
                    with self.subTest(page=page.name, path=path):
                        count += 1
                        self.assertTrue(list(support.ROOT.glob(one.rstrip("/"))))
        self.assertGreater(count, 100)

    def test_the_index_is_whole(self):
        index = support.ROOT / "docs" / "README.md"
        linked = {target for target, _ in self.links(index)}
        for page in (support.ROOT / "docs").glob("*.md"):
            self.assertTrue(page == index or page.resolve() in linked, page.name)


if __name__ == "__main__":
    unittest.main()
