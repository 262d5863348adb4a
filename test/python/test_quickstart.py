"""The quickstart's verdict accepts a model better than the baseline and rejects a worse one."""

import json
import pathlib
import tempfile
import unittest

import support

import quickstart_report


class Script(unittest.TestCase):
    def test_held_out_loss_is_of_every_sample(self):
        """All validation samples are used, as for the bigram baseline printed next to it."""
        self.assertIn("--eval-samples 0", (support.ROOT / "tools" / "quickstart").read_text())


class Report(unittest.TestCase):
    table = (2.453, 2.591)

    def test_better_on_both(self):
        self.assertEqual(quickstart_report.verdict((1.5, 2.2), self.table), [])

    def test_training_loss_too_high(self):
        self.assertIn("training", quickstart_report.verdict((2.0, 2.2), self.table)[0])

    def test_held_out_loss_too_high(self):
        self.assertIn("held-out", quickstart_report.verdict((1.5, 2.6), self.table)[0])

    def test_not_a_number_is_not_better(self):
        nan = float("nan")
        self.assertEqual(len(quickstart_report.verdict((nan, nan), self.table)), 2)

    def test_losses_of_a_log(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log.jsonl"
            steps = [{"step": i, "loss": 100.0 if i < 10 else 2.0, "val_loss": None,
                      "val_samples": None}
                     for i in range(30)]
            steps[15] |= {"val_loss": 3.0, "val_samples": 185}
            steps[29] |= {"val_loss": 2.5, "val_samples": 184}
            log.write_text("".join(json.dumps(step) + "\n" for step in steps))
            self.assertEqual(quickstart_report.model_losses(log), (2.0, 2.5, 184))
            log.write_text(json.dumps({"step": 1, "loss": 2.0}) + "\n")
            with self.assertRaises(ValueError):
                quickstart_report.model_losses(log)


if __name__ == "__main__":
    unittest.main()
