#!/usr/bin/python3
"""Compares cleave's rows.onnx with numpy: rows.py FOLDER."""

import pathlib
import subprocess
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
at = np.array([[0, 8, 3], [5, 5, 1]], np.int64)
np.savez(folder / "in.npz", at=at)
subprocess.run(["cleave", "infer", folder / "rows.onnx", "--inputs", folder / "in.npz",
                "--outputs", folder / "out.npz"], check=True, stdout=subprocess.DEVNULL)
table = np.sin(np.arange(54, dtype=np.float32).reshape(9, 6) ** 2)[:, :4]
out = np.load(folder / "out.npz")
np.testing.assert_array_equal(out["known"], table[None, [8, 7, 6]])
np.testing.assert_array_equal(out["data"], table[at])
