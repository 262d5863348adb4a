// Creates the engines (compiled programs or interpreters) that run the programs
// of a check.

#include "cleave/Check/Programs.h"

#include "cleave/Check/Faults.h"
#include "cleave/Check/Passes.h"
#include "cleave/Compiler/Compiler.h"
#include "cleave/Compiler/Pipelined.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"

#include <algorithm>

using namespace mlir;

namespace cleave::check {

using compiler::isSharded;

static OwningOpRef<ModuleOp> clone(ModuleOp module) {
  return cast<ModuleOp>(module->clone());
}

static LogicalResult widen(ModuleOp module) {
  return runPasses(module, "check-widen", [](OpPassManager &passes) {
    passes.addPass(createWidenPass());
  });
}

Programs::Programs(const CheckedPrograms &programs, const Config &config,
                   const Mesh &mesh, std::string transport)
    : programs(programs), config(config), mesh(mesh),
      transport(std::move(transport)) {
  if (!programs.record.empty())
    recording = std::make_unique<Recording>(programs.record);
}

FailureOr<Programs::Module> Programs::stages(const Mesh &mesh, Taps taps) {
  Module model = clone(*untrained);
  compiler::TrainPhaseOptions train;
  train.tapGradients = taps != Taps::None;
  if (failed(compiler::cutPipeline(*model, config, mesh, train)))
    return failure();
  compiler::ShardPhaseOptions shard;
  if (taps == Taps::Values)
    shard.prepareStage = tapAllValues;
  return compiler::shardPipeline(*model, config, mesh, shard);
}

FailureOr<Programs::Module> Programs::partition(ModuleOp global, Taps taps) {
  Module local;
  if (untrained) {
    FailureOr<Module> cut = stages(mesh, taps);
    if (failed(cut))
      return failure();
    local = std::move(*cut);
  } else {
    local = clone(global);
    if (failed(compiler::shard(*local, config, mesh)))
      return failure();
  }
  if (programs.inject.empty() || breaksCommands())
    return local;
  std::string where;
  if (failed(injectFault(*local, programs.inject, faultIndex(*local), where)))
    return configError(global.getContext())
           << "the fault (--inject): " << where;
  fault = programs.inject + ": " + where;
  return local;
}

FailureOr<Engine *> Programs::sharded(ModuleOp local, bool wide) {
  return programs.interpret
             ? interpret(local)
             : compile(local, wide, mesh, breaksCommands(), transport);
}

FailureOr<Engine *> Programs::reference(ModuleOp global, bool wide) {
  Module one = clone(global);
  if (isSharded(*one))
    compiler::removeShardings(*one);
  if (wide && (programs.against == "interpreter" || programs.interpret))
    return interpret(*one);
  if (failed(compiler::shard(*one, config, Mesh())))
    return failure();
  return compile(*one, wide, Mesh(), /*isBroken=*/false, "local");
}

FailureOr<Engine *> Programs::interpret(ModuleOp module) {
  modules.push_back(clone(module));
  if (failed(widen(*modules.back())))
    return failure();
  auto engine = makeInterpreterEngine(*modules.back());
  if (failed(engine))
    return failure();
  engines.push_back(std::move(*engine));
  return engines.back().get();
}

// Returns which of the operations that can have the fault gets it, as an index
// into faultPlaces. A check may build several versions of the sharded program,
// for example one that returns all values (--bisect). The first call chooses an
// operation. In later versions, the fault is injected into the operation with
// the same description or, if there is none, into the one with the same index.
int64_t Programs::faultIndex(ModuleOp local) {
  std::vector<std::string> names = faultPlaces(local, programs.inject);
  int64_t count = names.size(), index = programs.injectIndex;
  if (index < 0)
    index = count / 2;
  if (index >= count)
    return index; // injectFault reports an error
  if (!brokenName) {
    brokenName = names[index];
    before = std::count(names.begin(), names.begin() + index, *brokenName);
    return index;
  }
  int64_t seen = 0;
  for (auto [i, name] : llvm::enumerate(names))
    if (name == *brokenName && seen++ == before)
      return i;
  return index;
}

bool Programs::breaksCommands() const {
  return !programs.interpret && isFaultOfCommands(programs.inject);
}

CompiledOptions Programs::optionsFor(bool wide, const Mesh &mesh) const {
  CompiledOptions options;
  options.device = compiler::deviceOf(config);
  options.recording = recording.get();
  options.recordingName = std::string(wide ? "exact-" : "rounding-") +
                          (&mesh == &this->mesh ? "sharded" : "reference");
  options.architectures = config.target.architectures;
  options.threads = compiler::threadsPerRank(config, mesh);
  options.overlap = config.target.overlap;
  options.tf32 = config.train.precision == "tf32";
  options.cluster = compiler::clusterNameOf(config);
  options.arrivesEarly = !wide; // tests early and late messages
  if (wide) // a few steps: compiling takes longer than running
    options.optLevel = 1;
  return options;
}

FailureOr<Engine *> Programs::compile(ModuleOp local, bool wide,
                                      const Mesh &mesh, bool isBroken,
                                      const std::string &transport) {
  MLIRContext &context = *local.getContext();
  modules.push_back(clone(local));
  if (wide && failed(widen(*modules.back())))
    return failure();
  CompiledOptions options = optionsFor(wide, mesh);
  options.transport = transport;
  std::string where;
  bool hasPlace = true, refused = false;
  options.refused = &refused;
  if (isBroken)
    options.change = [&](program::Program &program) {
      auto broken =
          injectFault(program, programs.inject, programs.injectIndex, where);
      hasPlace = succeeded(broken);
      return broken;
    };
  HeldMessages held(context);
  auto engine = makeCompiledEngine(*modules.back(), options);
  if (!hasPlace) {
    held.drop();
    return configError(&context) << "the fault (--inject): " << where;
  }
  if (failed(engine)) {
    if (!refused) // a program that the machine cannot run is an input fault
      held.markErrors();
    return failure();
  }
  if (isBroken)
    fault = programs.inject + ": " + where;
  engines.push_back(std::move(*engine));
  return engines.back().get();
}

} // namespace cleave::check
