"""The bigram baseline of the quickstart."""

import math
import pathlib
import tempfile
import unittest

import support
import bigram


class Bigram(unittest.TestCase):
    def test_by_hand(self):
        # 'a' is followed by 'b' twice; 0.1 is added to each of 256 counts.
        train, text = b"abab", b"ab"
        self.assertAlmostEqual(bigram.bigram(train, text), -math.log(2.1 / (2 + 25.6)))

    def test_split(self):
        self.assertEqual(bigram.split(b"0123456789"), (b"012345678", b"9"))

    def test_regular_files_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "b").write_bytes(b"2")
            (folder / "a").write_bytes(b"1")
            (folder / "c").symlink_to("a")
            self.assertEqual(bigram.read_corpus(folder), b"12")

    @unittest.skipUnless(pathlib.Path(bigram.FOLDER).is_dir(), "no common-licenses folder")
    def test_licence_texts(self):
        train, held_out = bigram.split(bigram.read_corpus())
        self.assertAlmostEqual(bigram.bigram(train, train), 2.45, delta=0.03)
        self.assertAlmostEqual(bigram.bigram(train, held_out), 2.59, delta=0.03)


if __name__ == "__main__":
    unittest.main()
