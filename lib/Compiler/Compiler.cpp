// Compiles a model with a configuration to a program.

#include "cleave/Compiler/Compiler.h"

#include "ModelFiles.h"
#include "Output.h"

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Pipelined.h"
#include "cleave/Compiler/PlanWarnings.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Input.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

program::Device deviceOf(const Config &config) {
  return config.target.kind == "cuda" ? program::Device::Cuda
                                      : program::Device::Cpu;
}

int64_t threadsPerRank(const Config &config, const Mesh &mesh) {
  if (config.target.threadsPerRank > 0)
    return config.target.threadsPerRank;
  if (deviceOf(config) == program::Device::Cuda)
    return 1; // host threads only start work on the device
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::max<int64_t>(1, cores / std::max<int64_t>(1, mesh.ranks()));
}

int64_t memoryOfRank(const Mesh &mesh) {
  int64_t pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0
             ? pages * size / std::max<int64_t>(1, mesh.ranks())
             : 0;
}

/// Copies attributes of the model's module to the module that replaces it.
static void copyNotes(ModuleOp from, ModuleOp to) {
  for (StringRef name : {kUnreadAttr, kGraphDigestAttr})
    if (Attribute note = from->getAttr(name))
      to->setAttr(name, note);
}

static void eraseFunction(ModuleOp module, StringRef name) {
  if (auto func = module.lookupSymbol<func::FuncOp>(name))
    func.erase();
}

Compiler::Compiler(MLIRContext &context, Config config, Mesh mesh,
                   CompilerOptions options)
    : context(context), settings(std::move(config)), ranks(std::move(mesh)),
      options(std::move(options)) {
  loadDialects(context);
}

FailureOr<Compiler::Module> Compiler::load(const std::string &path) {
  LoadOptions load;
  load.readWeights = options.readWeights;
  load.trains = options.purpose != Purpose::Infer;
  return loadModel(path, settings, context, load);
}

LogicalResult Compiler::train(ModuleOp model) {
  if (isSharded(model))
    return success();
  bool infers = options.purpose == Purpose::Infer;
  if (!infers)
    warnOfPlan(model, settings, ranks);
  if (isPipelined(settings, ranks)) {
    TrainPhaseOptions phase;
    phase.purpose = options.purpose;
    phase.afterLoss = options.afterLoss;
    return cutPipeline(model, settings, ranks, phase);
  }
  if (infers)
    return success();
  if (failed(addLoss(model, settings)) ||
      (options.afterLoss && failed(options.afterLoss(model))) ||
      failed(addGradients(model, settings, /*tapGradients=*/false)))
    return failure();
  if (isForSteps(options.purpose))
    eraseFunction(model, nn::kForwardFunc);
  return success();
}

FailureOr<Compiler::Module> Compiler::shard(Module trained) {
  if (isPipelined(settings, ranks) && !isSharded(*trained)) {
    ShardPhaseOptions phase;
    phase.allRemarks = options.allRemarks;
    phase.infers = options.purpose == Purpose::Infer;
    FailureOr<Module> stages = shardPipeline(*trained, settings, ranks, phase);
    if (succeeded(stages))
      copyNotes(*trained, **stages);
    return stages;
  }
  if (!trained->getOps<ModuleOp>().empty())
    return trained->emitError("the model is cut into the stages of a pipeline, "
                              "but the configuration has no mesh.pipeline");
  target::noteVocabulary(*trained);
  if (failed(compiler::shard(*trained, settings, meshOf(*trained, ranks),
                             options.allRemarks)))
    return failure();
  return trained;
}

/// Fills in the parts of the manifest that cannot be derived from the module.
void Compiler::describe(Lowered &lowered, const std::string &path) const {
  bool infers = options.purpose == Purpose::Infer;
  auto batch = settings.dims.find("batch");
  bool hasBatch = batch != settings.dims.end();
  BackendOptions &backend = lowered.backend;
  backend.device = deviceOf(settings);
  backend.memoryLimit =
      settings.target.memory > 0
          ? std::llround(std::ldexp(settings.target.memory, 30))
          : options.memoryLimit;
  backend.batch = hasBatch ? batch->second : 0;
  backend.cluster = clusterNameOf(settings);
  backend.overlap = settings.target.overlap;
  backend.tf32 = settings.train.precision == "tf32";
  backend.threads = threadsPerRank(settings, meshOf(*lowered.module, ranks));
  target::ManifestInfo &info = lowered.info;
  info.model = fs::path(path).stem().string();
  info.weightsFolder =
      fs::absolute(path).lexically_normal().parent_path().string();
  info.configJson = writeConfigJson(settings);
  info.microbatches = infers ? 1 : settings.train.microbatches;
  if (hasBatch && !infers)
    info.batch = batch->second;
  for (const auto &[name, source] : settings.data.inputs)
    info.sources[name] = source;
  for (const auto &[name, value] : settings.data.bind)
    if (std::string text, reason;
        StringRef(value).ends_with(".npy") && readInput(value, text, reason))
      info.bound[name] = digestOfPieces(text);
  if (settings.data.labels != "next")
    info.labelsSource = settings.data.labels;
  Operation *module = lowered.module->getOperation();
  if (auto unread = module->getAttrOfType<ArrayAttr>(kUnreadAttr))
    for (auto name : unread.getAsValueRange<StringAttr>())
      info.unread.push_back(name.str());
  if (auto graph = module->getAttrOfType<StringAttr>(kGraphDigestAttr))
    info.graph = graph.str();
}

FailureOr<Compiler::Module> Compiler::runUpTo(const std::string &path,
                                              Phase last) {
  LoadOptions load;
  load.readWeights = options.readWeights;
  load.trains = options.purpose != Purpose::Infer && last != Phase::Import;
  FailureOr<Module> module = loadModel(path, settings, context, load);
  if (failed(module) || last == Phase::Import)
    return module;
  if (failed(train(**module)))
    return failure();
  if (last == Phase::Train)
    return module;
  module = shard(std::move(*module));
  if (failed(module) || last == Phase::Shard)
    return module;
  Lowered lowered;
  lowered.module = std::move(*module);
  describe(lowered, path);
  if (failed(lowerToCommands(*lowered.module, lowered.backend,
                             last == Phase::Kernels    ? BackendPhase::Kernels
                             : last == Phase::Schedule ? BackendPhase::Schedule
                                                       : BackendPhase::Memory)))
    return failure();
  return std::move(lowered.module);
}

/// Lowers a module after the phase `train` (with backward pass and optimizer)
/// to command lists with planned memory.
FailureOr<Lowered> Compiler::lowerTrained(const std::string &path,
                                          Module trained) {
  FailureOr<Module> local = shard(std::move(trained));
  if (failed(local))
    return failure();
  Lowered lowered;
  lowered.module = std::move(*local);
  describe(lowered, path);
  warnOfPadding(*lowered.module, settings);
  if (failed(lowerToCommands(*lowered.module, lowered.backend)))
    return failure();
  return lowered;
}

static LogicalResult emit(Lowered &lowered) {
  auto program =
      target::emitProgram(*lowered.module, programOptions(lowered.backend));
  if (failed(program))
    return failure();
  lowered.program = std::move(*program);
  return success();
}

FailureOr<Lowered> Compiler::lower(const std::string &path) {
  FailureOr<Module> model = load(path);
  if (failed(model) || failed(train(**model)))
    return failure();
  // Overlapped collectives need more memory. How much memory a pipeline needs
  // is only known after its program is emitted, so a pipeline with a memory
  // limit is first compiled with overlap, and then without overlap if it does
  // not fit.
  bool hasLimit = settings.target.memory > 0 || options.memoryLimit > 0;
  bool mayFitPlain = hasLimit && settings.target.overlap &&
                     options.purpose != Purpose::Infer &&
                     isPipelined(settings, ranks);
  if (mayFitPlain) {
    HeldMessages held(context);
    FailureOr<Lowered> lowered =
        lowerTrained(path, cast<ModuleOp>((*model)->getOperation()->clone()));
    if (failed(lowered) || succeeded(emit(*lowered)))
      return lowered;
    held.drop();
  }
  // If the program did not fit with overlap, overlap is disabled for this
  // compilation; the setting is restored below.
  bool overlap = std::exchange(settings.target.overlap,
                               settings.target.overlap && !mayFitPlain);
  FailureOr<Lowered> lowered = lowerTrained(path, std::move(*model));
  settings.target.overlap = overlap;
  if (succeeded(lowered) && failed(emit(*lowered)))
    return failure();
  return lowered;
}

LogicalResult Compiler::write(Lowered &lowered, const std::string &folder) {
  target::KernelOptions kernels;
  kernels.architectures = settings.target.architectures;
  // All errors after this point are failures of the machine, not of the input.
  ScopedDiagnosticHandler marks(&context, [](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      markAsMachineFault(diagnostic);
    return failure(); // earlier handlers print the error
  });
  return target::writeArtifact(*lowered.module, lowered.program, lowered.info,
                               kernels, folder);
}

LogicalResult Compiler::compile(const std::string &path,
                                const std::string &folder) {
  if (failed(checkOutputFolder(folder, &context)))
    return failure();
  FailureOr<ModelFiles> files = ModelFiles::note(path, settings, context);
  if (failed(files))
    return failure();
  // A program that will run on this machine must fit into the machine's memory.
  // There is no such limit for `cleave compile` (Purpose::Compile), because its
  // program may run on another machine, nor for CUDA devices, whose memory is
  // only known on the machine that has them.
  if (options.purpose != Purpose::Compile && options.memoryLimit == 0 &&
      deviceOf(settings) == program::Device::Cpu)
    options.memoryLimit = memoryOfRank(ranks);
  FailureOr<Lowered> lowered = lower(path);
  if (failed(lowered) || failed(write(*lowered, folder)))
    return failure();
  if (succeeded(files->check(&context)))
    return success();
  std::error_code error;
  fs::remove_all(folder, error);
  return failure();
}

} // namespace cleave::compiler
