# The lit suite: folders mirror lib/. Tests of other runners (GoogleTest, Python,
# GPU) and data are excluded.
#
#   --param roundtrip=1   run cleave-opt with --verify-roundtrip everywhere,
#                         which checks every printer and parser on the way

import os

import lit.formats

config.name = "cleave"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "unit", "python", "models", "peers", "gpu", "walkthroughs",
                   "installed"]
config.test_source_root = os.path.join(config.cleave_source_dir, "test")
config.test_exec_root = os.path.join(config.cleave_binary_dir, "test")

bin_dir = os.path.join(config.cleave_binary_dir, "bin")
config.environment["PATH"] = os.pathsep.join(
    [bin_dir, config.llvm_tools_dir, config.environment["PATH"]]
)
config.environment["FILECHECK_OPTS"] = "-enable-var-scope"

# A run must depend neither on its launcher nor on the user's cache.
for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"):
    config.environment.pop(name, None)
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")

# %exits 2 COMMAND...: the command must end with exactly this code.
config.substitutions.append(
    ("%exits", "/usr/bin/python3 " + os.path.join(config.test_source_root, "Inputs", "exits.py"))
)
config.substitutions.append(("%python", "/usr/bin/python3"))
config.substitutions.append(("%models", os.path.join(config.test_source_root, "models")))
config.substitutions.append(("%source", config.cleave_source_dir))

if lit_config.params.get("roundtrip"):
    # Only the tool's name as a separate word, not as a part of a path.
    config.substitutions.append(
        (r"(?<![\w./-])cleave-opt(?![\w./-])", "cleave-opt --verify-roundtrip")
    )

for sanitizer in filter(None, config.cleave_sanitize.split(",")):
    config.available_features.add(sanitizer)
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
