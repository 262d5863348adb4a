// The phases as passes of cleave-opt.

#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Passes.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/Support/Errors.h"

using namespace mlir;

namespace cleave {
#define GEN_PASS_DEF_CLEAVETRAINPASS
#define GEN_PASS_DEF_CLEAVESHARDPASS
#include "cleave/Compiler/Passes.h.inc"
} // namespace cleave

using namespace cleave;
using compiler::Compiler;

/// Creates a compiler from the options of a pass. If `module` has a mesh of its
/// own, that mesh is used instead of the configured one. If `warns` is true,
/// warns of keys that have no effect.
static FailureOr<Compiler> compilerFor(ModuleOp module, const std::string &file,
                                       ArrayRef<std::string> keys, bool infers,
                                       bool warns) {
  MLIRContext *context = module.getContext();
  ConfigSources sources;
  sources.file = file;
  for (const std::string &key : keys) {
    auto value = parseOverride(key);
    if (!value)
      return configError(context) << value.error();
    sources.overrides.push_back(*value);
  }
  ConfigResult<LoadedConfig> loaded = loadConfig(sources);
  if (!loaded)
    return configError(context) << loaded.error();
  Config config = loaded->config;
  ConfigResult<Mesh> mesh = resolveMesh(config, std::nullopt);
  if (!mesh)
    return configError(context) << mesh.error();
  for (auto fault : {checkTypes(config), checkMeshUse(config, *mesh)})
    if (fault)
      return configError(context) << fault->message;
  if (warns)
    for (const std::string &text : idleKeys(*loaded, *mesh))
      emitWarning(module.getLoc()) << text;
  applyMesh(config, *mesh);
  compiler::CompilerOptions options;
  options.purpose =
      infers ? compiler::Purpose::Infer : compiler::Purpose::Compile;
  return Compiler(*context, config, compiler::meshOf(module, *mesh), options);
}

namespace {

struct CleaveTrainPass : cleave::impl::CleaveTrainPassBase<CleaveTrainPass> {
  using CleaveTrainPassBase::CleaveTrainPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    compiler::registerDialects(registry);
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Compiler> compiler =
        compilerFor(module, config, set, infers, /*warns=*/true);
    if (failed(compiler) ||
        failed(compiler::prepareModel(module, "-", compiler->config(),
                                      /*compiles=*/false)) ||
        failed(compiler->train(module)))
      signalPassFailure();
  }
};

struct CleaveShardPass : cleave::impl::CleaveShardPassBase<CleaveShardPass> {
  using CleaveShardPassBase::CleaveShardPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    compiler::registerDialects(registry);
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Compiler> compiler =
        compilerFor(module, config, set, infers, /*warns=*/false);
    // Sharding returns a new module. Its contents replace the pass's module,
    // which contains the pipeline stages.
    FailureOr<Compiler::Module> local = failure();
    if (succeeded(compiler))
      local = compiler->shard(cast<ModuleOp>(module->clone()));
    if (failed(local))
      return signalPassFailure();
    module.getBody()->clear();
    module.getBody()->getOperations().splice(
        module.getBody()->end(), (*local)->getBody()->getOperations());
    module->setAttrs((*local)->getOperation()->getAttrs());
  }
};

} // namespace
