#include "CheckEngines.h"

#include "CompileModel.h"

#include "cleave/Check/Faults.h"
#include "cleave/Check/Passes.h"
#include "cleave/trainer/Train.h"

#include "mlir/Pass/PassManager.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::driver;
using mlir::ModuleOp;
using mlir::OwningOpRef;

static OwningOpRef<ModuleOp> clone(ModuleOp module) {
  return llvm::cast<ModuleOp>(module->clone());
}

static void widen(ModuleOp module) {
  Diagnostics diagnostics(*module.getContext());
  mlir::PassManager passes(module.getContext());
  passes.addPass(createWidenPass());
  if (failed(passes.run(module)))
    diagnostics.fail(BadUsage);
}

CheckEngines::CheckEngines(const CheckedPrograms &programs,
                           const Config &config, const Mesh &mesh)
    : programs(programs), config(config), mesh(mesh),
      transport(chooseTransport(config.target.transport, mesh.ranks(),
                                config.target.kind)) {
  if (!programs.record.empty())
    recording = std::make_unique<check::Recording>(programs.record);
}

CheckEngines::Module CheckEngines::stages(const Mesh &mesh, Taps taps) {
  OwningOpRef<ModuleOp> model = clone(*untrained);
  return buildPipeline(*model, config, mesh, Purpose::Compile, taps);
}

CheckEngines::Module CheckEngines::partition(ModuleOp global, Taps taps) {
  OwningOpRef<ModuleOp> local;
  if (untrained) {
    local = stages(mesh, taps);
  } else {
    local = clone(global);
    runShardPhase(*local, config, mesh);
  }
  if (programs.inject.empty() || breaksCommands())
    return local;
  std::string where;
  if (failed(check::injectFault(*local, programs.inject, faultIndex(*local),
                                where)))
    throw Failure(BadUsage, "--inject: " + where);
  fault = programs.inject + ": " + where;
  return local;
}

check::Engine &CheckEngines::sharded(ModuleOp local, bool wide) {
  return programs.interpret
             ? interpret(local)
             : compile(local, wide, mesh, breaksCommands(), transport);
}

check::Engine &CheckEngines::reference(ModuleOp global, bool wide) {
  OwningOpRef<ModuleOp> one = clone(global);
  if (isSharded(*one))
    removeShardings(*one);
  if (wide && (programs.against == "interpreter" || programs.interpret))
    return interpret(*one);
  runShardPhase(*one, config, Mesh());
  return compile(*one, wide, Mesh(), /*isBroken=*/false, "local");
}

check::Engine &CheckEngines::interpret(ModuleOp module) {
  modules.push_back(clone(module));
  widen(*modules.back());
  Diagnostics diagnostics(*module.getContext());
  auto engine = check::makeInterpreterEngine(*modules.back());
  if (failed(engine))
    diagnostics.fail(BadUsage);
  engines.push_back(std::move(*engine));
  return *engines.back();
}

// The place that was asked for. In a program with taps, which may have
// others, it is the one of the same name, or else of the same index.
int64_t CheckEngines::faultIndex(ModuleOp local) {
  std::vector<std::string> names = check::faultPlaces(local, programs.inject);
  int64_t count = names.size(), index = programs.injectIndex;
  if (index < 0)
    index = count / 2;
  if (index >= count)
    return index; // refused
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

bool CheckEngines::breaksCommands() const {
  return !programs.interpret && check::isFaultOfCommands(programs.inject);
}

check::Engine &CheckEngines::compile(ModuleOp local, bool wide,
                                     const Mesh &mesh, bool isBroken,
                                     const std::string &transport) {
  std::vector<std::string> unread; // of what comes after partitioning
  Diagnostics diagnostics(*local.getContext(), &unread);
  modules.push_back(clone(local));
  if (wide)
    widen(*modules.back());
  check::CompiledOptions options;
  options.device = deviceOf(config);
  options.recording = recording.get();
  options.recordingName = std::string(wide ? "exact-" : "rounding-") +
                          (&mesh == &this->mesh ? "sharded" : "reference");
  options.architectures = config.target.architectures;
  options.threads = threadsPerRank(config, mesh);
  options.overlap = config.target.overlap;
  options.tf32 = config.train.precision == "tf32";
  options.cluster = clusterNameOf(config);
  options.transport = transport;
  options.arrivesEarly = !wide; // so that both extremes are seen
  if (wide) // a few steps: compiling takes longer than running
    options.optLevel = 1;
  std::string where;
  bool hasPlace = true, refused = false;
  options.refused = &refused;
  if (isBroken)
    options.change = [&](program::Program &program) {
      auto broken = check::injectFault(program, programs.inject,
                                       programs.injectIndex, where);
      hasPlace = succeeded(broken);
      return broken;
    };
  auto engine = check::makeCompiledEngine(*modules.back(), options);
  if (!hasPlace)
    throw Failure(BadUsage, "--inject: " + where);
  if (failed(engine)) // as by `compile`
    diagnostics.fail(refused ? BadUsage : RunFailed);
  if (isBroken)
    fault = programs.inject + ": " + where;
  engines.push_back(std::move(*engine));
  return *engines.back();
}
