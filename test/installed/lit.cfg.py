# A suite outside of cleave's tree.
import lit.formats

config.name = "outside"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_exec_root = lit_config.params["output"]
config.environment["PATH"] = lit_config.params["path"]
config.substitutions.append(("%plugin", lit_config.params["plugin"]))
