"""tools/roofline's counts agree with those of `cleave explain`."""

import json
import re
import tempfile
import unittest

import support

ROOFLINE = support.ROOT / "tools" / "roofline"


class Roofline(unittest.TestCase):
    def table(self, *flags):
        """The parsed output: {name: (count, GB, TFLOP, ms)}."""
        text = support.succeed("/usr/bin/python3", ROOFLINE, "--build", support.BUILD, *flags)
        rows = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[1:])
        return {row[0]: tuple(float(x) for x in " ".join(row[1:]).split()) for row in rows}

    def test_a_large_model(self):
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/llama.onnx"
            support.succeed("/usr/bin/python3", support.ROOT / "test/models/generate.py", model, "--family", "llama",
                            "--no-weights", "--layers", "2", "--hidden", "1024", "--heads", "16", "--kv-heads", "4",
                            "--intermediate", "4096", "--vocab", "32000", "--batch", "4", "--sequence", "1024")
            flags = [model, "--config", f"{folder}/llama.toml", "--set", "train.precision=bf16"]
            rows = self.table(*flags)
            said = json.loads(support.succeed(support.CLEAVE, "explain", *flags, "--set", "target.kind=cuda", "--json"))
        total = rows.pop("all")
        for index in range(4):
            self.assertAlmostEqual(sum(row[index] for row in rows.values()), total[index], delta=0.01)
        flops, attention = (said["per_rank"][0][key] for key in ("flops", "attention_flops"))
        self.assertAlmostEqual(rows["matmul"][2] / ((flops - attention) / 1e12), 1, delta=0.01)
        self.assertAlmostEqual(rows["attention"][2] / (attention / 1e12), 1, delta=0.01)
        # AdamW: reads four f32 numbers, writes three f32 and one bf16.
        parameters = 2 * (1024 * 1024 * 2 + 2 * 1024 * 256 + 3 * 1024 * 4096) + 2 * 32000 * 1024
        self.assertAlmostEqual(rows["optimizer"][1] / (30 * parameters / 1e9), 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
