// The phases as passes of cleave-opt.

#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Passes.h"
#include "cleave/Compiler/Sharded.h"

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
  ConfigSources sources;
  sources.file = file;
  for (const std::string &key : keys) {
    auto value = parseOverride(key);
    if (!value)
      return module.emitError("option set=")
             << key << " of the pass: " << value.error();
    sources.overrides.push_back(*value);
  }
  auto fail = [&](const std::string &why) -> LogicalResult {
    InFlightDiagnostic error = module.emitError("options of the pass (");
    if (!file.empty())
      error << "config=" << file << (keys.empty() ? "" : " ");
    llvm::interleave(
        keys, error, [&](const std::string &key) { error << "set=" << key; },
        " ");
    return error << "): " << why;
  };
  ConfigResult<LoadedConfig> loaded = loadConfig(sources);
  if (!loaded)
    return fail(loaded.error());
  Config config = loaded->config;
  ConfigResult<Mesh> mesh = resolveMesh(config, std::nullopt);
  if (!mesh)
    return fail(mesh.error());
  for (auto fault : {checkTypes(config), checkMeshUse(config, *mesh)})
    if (fault)
      return fail(fault->message);
  if (warns)
    for (const std::string &text : idleKeys(*loaded, *mesh))
      emitWarning(module.getLoc()) << text;
  applyMesh(config, *mesh);
  compiler::CompilerOptions options;
  options.purpose =
      infers ? compiler::Purpose::Infer : compiler::Purpose::Compile;
  return Compiler(*module.getContext(), config, compiler::meshOf(module, *mesh),
                  options);
}

namespace {

/// Gives the errors without a location that of the module. The phases report
/// errors of the configuration without a location, because the commands of
/// `cleave` name the model's file in another way.
class LocatedErrors {
public:
  explicit LocatedErrors(ModuleOp module)
      : handler(module.getContext(),
                [loc = module.getLoc()](Diagnostic &diagnostic) {
                  if (diagnostic.getSeverity() != DiagnosticSeverity::Error ||
                      !isa<UnknownLoc>(diagnostic.getLocation()) ||
                      isa<UnknownLoc>(loc))
                    return failure();
                  mlir::emitError(loc) << diagnostic.str();
                  return success();
                }) {}

private:
  ScopedDiagnosticHandler handler;
};

/// Returns the path of the file that the module was parsed from.
std::string pathOf(ModuleOp module) {
  auto location = dyn_cast<FileLineColLoc>(module.getLoc());
  return location ? location.getFilename().str() : "-";
}

struct CleaveTrainPass : cleave::impl::CleaveTrainPassBase<CleaveTrainPass> {
  using CleaveTrainPassBase::CleaveTrainPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    compiler::registerDialects(registry);
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    LocatedErrors located(module);
    FailureOr<Compiler> compiler =
        compilerFor(module, config, set, infers, /*warns=*/true);
    if (failed(compiler) ||
        failed(compiler::prepareModel(module, pathOf(module),
                                      compiler->config(),
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
    LocatedErrors located(module);
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
