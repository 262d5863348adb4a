// plan MODEL CONFIG: compiles a model with the library and prints what `cleave
// explain` prints. This program handles the compiler's messages itself.

#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Phases.h"
#include "cleave/Config/Load.h"
#include "cleave/Explain/Explain.h"
#include "cleave/Support/Messages.h"

using namespace cleave;

static int fail(const std::vector<std::string> &lines) {
  for (const std::string &line : lines)
    llvm::errs() << "plan: error: " << line << "\n";
  return 2;
}

static mlir::FailureOr<Explanation> explained(mlir::MLIRContext &context,
                                              const std::string &model,
                                              const Config &config,
                                              const Mesh &mesh) {
  compiler::CompilerOptions options;
  options.purpose = compiler::Purpose::Explain;
  compiler::Compiler compiler(context, config, mesh, options);
  auto lowered = compiler.lower(model);
  if (failed(lowered))
    return mlir::failure();
  auto memory = footprintsOf(lowered->program, *lowered->module);
  auto cluster = compiler::clusterOf(config, &context);
  if (failed(memory) || failed(cluster))
    return mlir::failure();
  return explain(lowered->program, *lowered->module, std::move(*memory),
                 lowered->info.microbatches, *cluster);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return fail({"usage: plan MODEL CONFIG"});
  ConfigResult<LoadedConfig> loaded = loadConfig({.file = argv[2]});
  if (!loaded)
    return fail({loaded.error()});
  ConfigResult<Mesh> mesh = resolveMesh(loaded->config, std::nullopt);
  if (!mesh)
    return fail({mesh.error()});
  mlir::MLIRContext context;
  Messages messages(context);
  auto explanation = explained(context, argv[1], loaded->config, *mesh);
  if (failed(explanation))
    return fail(messages.errors.lines());
  writeExplanation(*explanation, llvm::outs());
  return 0;
}
