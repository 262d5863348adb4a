"""Programs compiled for CUDA devices: files, kernels, alignment, errors."""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

import support
import training
from support import CLEAVE, run

UNIT, EMIT = (support.BUILD / "bin" / f"cleave-unit-{name}" for name in ("artifact", "target"))
CUDA = ("--set", "target.kind=cuda")
NO_TOOLKIT = {"CUDA_HOME": ""}

# (model, mesh, keys): strategies whose views start at different offsets.
PLANS = {
    "data and tensor": ("gpt2", "data=2,tensor=2", {"parallel__data__zero": 1}),
    "one rank": ("gpt2", "", {}),
    "three ranks": ("gpt2", "data=3", {"parallel__data__zero": 3}),
    "odd tiles": ("llama", "data=3,tensor=3", {"parallel__data__zero": 3, "train__microbatches": 2}),
    "pipeline": ("gpt2", "pipeline=2,data=2", {"parallel__data__zero": 2, "train__microbatches": 4}),
    "experts": ("mixtral", "data=2", {}),
    "bf16": ("gpt2", "data=2", {"train__precision": "bf16", "parallel__data__zero": 1}),
    "tensor in bf16": ("llama", "tensor=2", {"train__precision": "bf16"}),
    "experts in bf16": ("mixtral", "data=2", {"train__precision": "bf16", "train__dropout": 0.1}),
}


def has_ptxas():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return bool(shutil.which("ptxas")) or pathlib.Path(home, "bin", "ptxas").exists()


def model_of(name):
    """GPT-2 and Llama are small ones: most of the time goes into assembling kernels."""
    return training.small(name) if name in ("gpt2", "llama") else name


class CudaArtifacts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compile(self, name, model, mesh="", *flags, env=None, **keys):
        out = self.folder / name
        said = run(CLEAVE, "compile", *training.flags(model_of(model), mesh, **keys), *flags, "-o", out,
                   env=env)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.said = said.stderr
        return out

    def verify(self, folder):
        """Runs the C++ test on the program and its PTX."""
        said = support.succeed(UNIT, env={"CLEAVE_TEST_ARTIFACT": str(folder)})
        self.assertIn("[  PASSED  ] 2 tests", said)

    def files(self, folder):
        """The files listed in the manifest, which are exactly those in the folder."""
        listed = json.loads((folder / "manifest.json").read_text())["files"]
        for file in listed:
            self.assertEqual((folder / file["name"]).stat().st_size, file["bytes"])
        names = [file["name"] for file in listed]
        self.assertEqual({"manifest.json", *names}, {path.name for path in folder.iterdir()})
        return names

    def test_strategies(self):
        """ptxas assembles all kernels for every architecture, each time to the same."""
        ending = "cubin" if has_ptxas() else "ptx"
        expected = {"program.bin", "kernels.sm_80.ptx",
                    *(f"kernels.{arch}.{ending}" for arch in ("sm_80", "sm_90", "sm_100"))}
        for name, (model, mesh, keys) in support.some(PLANS.items(), 3):
            with self.subTest(name):
                out = self.compile(name.replace(" ", "-"), model, mesh, *CUDA, **keys)
                self.assertEqual(set(self.files(out)), expected)
                self.verify(out)
                if has_ptxas() and name == "data and tensor":  # a second time: the same bytes
                    self.assertEqual(self.files(out), ["program.bin", "kernels.sm_80.ptx", *(
                        f"kernels.{arch}.cubin" for arch in ("sm_80", "sm_90", "sm_100"))])
                    again = self.compile("again", model, mesh, *CUDA, **keys)
                    for file in self.files(out):
                        self.assertEqual((out / file).read_bytes(), (again / file).read_bytes(), file)

    def test_kernels_stay_within_their_arguments(self):
        """Kernels are interpreted, those that depend on the rank for every rank."""
        for name in support.some(("odd tiles", "data and tensor", "experts"), 2):
            with self.subTest(name):
                model, mesh, keys = PLANS[name]
                local = self.folder / "shard.mlir"
                support.succeed(CLEAVE, "compile", *training.flags(model_of(model), mesh, **keys), "--emit",
                                "shard", "-o", local)
                said = support.succeed(EMIT, "--gtest_filter=*OfAFile", env={"CLEAVE_TEST_PROGRAM": str(local)})
                self.assertIn("[  PASSED  ] 1 test", said)

    def test_arguments_of_cpu_kernels(self):
        for name in ("odd tiles", "pipeline"):
            model, mesh, keys = PLANS[name]
            out = self.compile(name.replace(" ", "-"), model, mesh, **keys)
            said = support.succeed(UNIT, env={"CLEAVE_TEST_ARTIFACT": str(out)})
            self.assertIn("[  PASSED  ] 1 test", said)

    def test_without_ptxas_there_is_ptx(self):
        out = self.compile("ptx", "gpt2", "", *CUDA, env=NO_TOOLKIT)
        self.assertEqual(self.files(out), ["program.bin", *(f"kernels.{a}.ptx" for a in ("sm_80", "sm_90", "sm_100"))])
        self.assertRegex(self.said, "warning: .*no ptxas .* sm_80, sm_90, sm_100 there is PTX")
        self.verify(out)

    def assembler(self, script):
        """Puts a script in place of the toolkit's ptxas."""
        path = self.folder / "toolkit" / "bin" / "ptxas"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return {"CUDA_HOME": str(self.folder / "toolkit")}

    def test_an_assembler_that_is_too_old(self):
        env = self.assembler("""
            if [ "$1" = --help ]; then echo "'sm_80','sm_90'"; else cp "$4" "$3"; fi""")
        out = self.compile("old", "gpt2", "", *CUDA, env=env)
        self.assertEqual(self.files(out), ["program.bin", "kernels.sm_80.ptx", "kernels.sm_100.ptx",
                                           "kernels.sm_80.cubin", "kernels.sm_90.cubin"])
        self.assertRegex(self.said, "warning: .*ptxas' does not know sm_100: for it there is PTX")
        # Each cubin is assembled from its own PTX.
        self.assertIn(".target sm_90", (out / "kernels.sm_90.cubin").read_text())

    def test_an_assembler_that_fails(self):
        env = self.assembler("""
            if [ "$1" = --help ]; then echo "'sm_80'"; else echo no room left; exit 1; fi""")
        done = run(CLEAVE, "compile", *training.flags(model_of("gpt2")), *CUDA, "-o", self.folder / "none",
                   env=env)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "error: .*cannot assemble kernels: .*/ptxas: no room left")
        self.assertFalse((self.folder / "none").exists())

    def test_host_kernels(self):
        only = ("--set", 'target.architectures=["sm_80"]')
        out = self.compile("host", "gpt2", "", *CUDA, *only, env={"CLEAVE_HOST_KERNELS": "1"})
        self.assertIn("kernels.so", self.files(out))

    def test_explain(self):
        """The program computes and stores the same as on CPUs, except for the device's scratch
        memory of calls, and padding of the classes in rows of logits."""
        cpu, cuda = (training.explain("mixtral", "data=2", target__kind=kind) for kind in ("cpu", "cuda"))
        for a, b in zip(cpu["per_rank"], cuda["per_rank"]):
            self.assertGreaterEqual(b["flops"], a["flops"])
            self.assertLessEqual(b["flops"], 1.05 * a["flops"])
            # On devices the runtime sorts rows with tables in scratch memory.
            self.assertGreater(b["memory"]["workspace"], 0)
            for part in ("parameters", "gradients", "optimizer"):
                self.assertEqual(a["memory"][part], b["memory"][part])

    def test_nothing_depends_on_the_threads(self):
        only = ("--set", 'target.architectures=["sm_90"]')
        one, many = (self.compile(f"threads-{count}", "mixtral", "data=2", *CUDA, *only, env=NO_TOOLKIT,
                                  target__threads_per_rank=count) for count in (1, 7))
        self.assertIn("kernels.sm_90.ptx", self.files(one))
        for file in self.files(one):
            if file.startswith("kernels"):
                self.assertEqual((one / file).read_bytes(), (many / file).read_bytes(), file)
        memory = [[rank["memory"] for rank in
                   training.explain("mixtral", "data=2", target__kind="cuda", target__threads_per_rank=count)["per_rank"]]
                  for count in (1, 7)]
        self.assertEqual(*memory)

    def test_refusals(self):
        model = training.flags("gpt2")
        for settings, pattern in {
            ("target.architectures=[\"sm_70\"]",):
                r'target.architectures .*found \["sm_70"\]; expected different ones of "sm_80", "sm_90", "sm_100"',
            ("target.architectures=sm_90",): "target.architectures",
            ("target.kind=cuda", "target.transport=mpi"): "expected auto, local or nccl",
            ("target.transport=nccl",): "expected auto, local or mpi",
        }.items():
            sets = [word for value in settings for word in ("--set", value)]
            for command in (["explain"], ["compile", "-o", self.folder / "refused"]):
                with self.subTest(settings, command=command[0]):
                    done = run(CLEAVE, command[0], *model, *command[1:], *sets)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertRegex(done.stderr, pattern)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    @unittest.skipIf(pathlib.Path("/dev/nvidiactl").exists(), "there is a device")
    def test_without_a_device(self):
        """An error is one line, not a crash."""
        only = ("--set", 'target.architectures=["sm_80"]')
        gpt2 = model_of("gpt2")
        for command in (["check", *training.flags(gpt2), *CUDA, *only, "--steps", 1],
                        [*training.command(self.folder / "out", gpt2, target__kind="cuda"), *only]):
            done = run(*([CLEAVE] if command[0] == "check" else []), *command)
            self.assertIn(done.returncode, (2, 3), done.stdout + done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
