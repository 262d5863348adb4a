// From a model to an artifact, with a cache.

#include "CompileModel.h"

#include "Cache.h"
#include "PipelineModel.h"
#include "PlanWarnings.h"
#include "Preflight.h"

#include "cleave/Codegen/GPU.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Input.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <unistd.h>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::driver {

program::Device deviceOf(const Config &config) {
  return config.target.kind == "cuda" ? program::Device::Cuda
                                      : program::Device::Cpu;
}

int64_t threadsPerRank(const Config &config, const Mesh &mesh) {
  if (config.target.threadsPerRank > 0)
    return config.target.threadsPerRank;
  if (deviceOf(config) == program::Device::Cuda)
    return 1; // they only hand work to the device
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::max<int64_t>(1, cores / std::max<int64_t>(1, mesh.ranks()));
}

int64_t memoryOfRank(const Mesh &mesh) {
  int64_t pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0
             ? pages * size / std::max<int64_t>(1, mesh.ranks())
             : 0;
}

void checkTraining(ModuleOp model, const Config &config, const Mesh &mesh) {
  checkData(model, config);
  int64_t limit =
      deviceOf(config) == program::Device::Cpu && !launcherWorldSize()
          ? memoryOfRank(mesh)
          : 0;
  if (config.target.memory > 0)
    limit = std::llround(std::ldexp(config.target.memory, 30));
  checkMemoryFloor(model, config, mesh, limit);
}

/// What the model says of itself, for a module that takes its place.
static void copyNotes(ModuleOp from, ModuleOp to) {
  for (StringRef name : {kUnreadAttr, kGraphDigestAttr})
    if (Attribute note = from->getAttr(name))
      to->setAttr(name, note);
}

static void eraseFunction(ModuleOp module, StringRef name) {
  if (auto func = module.lookupSymbol<func::FuncOp>(name))
    func.erase();
}

OwningOpRef<ModuleOp> shardModel(const std::string &path, const Config &config,
                                 const Mesh &mesh, Purpose purpose,
                                 MLIRContext &context, bool readWeights,
                                 std::vector<std::string> *remarks,
                                 bool allRemarks, Phase last) {
  bool trains = purpose != Purpose::Infer && last != Phase::Import;
  OwningOpRef<ModuleOp> module = loadModel(path, config, context, readWeights,
                                           /*compiles=*/true, trains);
  if (last == Phase::Import)
    return module;
  if (purpose != Purpose::Infer && !isSharded(*module)) {
    Diagnostics diagnostics(context, remarks);
    warnOfPlan(*module, config, mesh);
  }
  if (isPipelined(config, mesh) && !isSharded(*module)) {
    if (last == Phase::Shard) {
      auto stages = buildPipeline(*module, config, mesh, purpose, Taps::None,
                                  remarks, allRemarks);
      copyNotes(*module, *stages);
      return stages;
    }
    pipeline::Table table = makeSchedule(config, mesh).table;
    if (table.asynchronous)
      admitAsynchronous(*module, config, table);
    runLossPhase(*module, config, table.asynchronous);
    cutIntoStages(*module, config, table.stages, /*tapGradients=*/false,
                  table.asynchronous);
    return module;
  }
  if (purpose != Purpose::Infer && !isSharded(*module)) {
    runLossPhase(*module, config);
    if (purpose == Purpose::Train)
      checkTraining(*module, config, mesh);
    runGradientPhase(*module, config, /*tapGradients=*/false);
    if (isForSteps(purpose))
      eraseFunction(*module, nn::kForwardFunc);
  }
  if (last == Phase::Train)
    return module;
  target::noteVocabulary(*module);
  runShardPhase(*module, config, meshOf(*module, mesh), remarks, allRemarks);
  return module;
}

// Reads and partitions the model, up to its commands.
static Lowered lowerOnce(const std::string &path, const Config &config,
                         const Mesh &mesh, Purpose purpose,
                         MLIRContext &context, bool readWeights,
                         std::vector<std::string> *remarks, bool allRemarks,
                         int64_t memoryLimit) {
  Lowered lowered;
  lowered.backend.device = deviceOf(config);
  lowered.backend.memoryLimit = memoryLimit;
  if (auto batch = config.dims.find("batch"); batch != config.dims.end())
    lowered.backend.batch = batch->second;
  lowered.backend.cluster = clusterNameOf(config);
  lowered.backend.overlap = config.target.overlap;
  lowered.backend.tf32 = config.train.precision == "tf32";
  lowered.module = shardModel(path, config, mesh, purpose, context, readWeights,
                              remarks, allRemarks);
  lowered.backend.threads =
      threadsPerRank(config, meshOf(*lowered.module, mesh));
  lowered.info.model = fs::path(path).stem().string();
  fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  lowered.info.weightsFolder = folder.string();
  lowered.info.configJson = writeConfigJson(config);
  lowered.info.microbatches =
      purpose == Purpose::Infer ? 1 : config.train.microbatches;
  if (auto batch = config.dims.find("batch");
      batch != config.dims.end() && purpose != Purpose::Infer)
    lowered.info.batch = batch->second;
  for (const auto &[name, source] : config.data.inputs)
    lowered.info.sources[name] = source;
  for (const auto &[name, value] : config.data.bind)
    if (std::string text, reason;
        StringRef(value).ends_with(".npy") && readInput(value, text, reason))
      lowered.info.bound[name] = digestOfPieces(text);
  if (config.data.labels != "next")
    lowered.info.labelsSource = config.data.labels;
  if (auto unread =
          lowered.module->getOperation()->getAttrOfType<ArrayAttr>(kUnreadAttr))
    for (auto name : unread.getAsValueRange<StringAttr>())
      lowered.info.unread.push_back(name.str());
  if (auto graph = lowered.module->getOperation()->getAttrOfType<StringAttr>(
          kGraphDigestAttr))
    lowered.info.graph = graph.str();
  Diagnostics diagnostics(context, remarks);
  warnOfPadding(*lowered.module, config);
  if (failed(lowerToCommands(*lowered.module, lowered.backend)))
    diagnostics.fail(BadUsage);
  return lowered;
}

Lowered lowerModel(const std::string &path, const Config &config,
                   const Mesh &mesh, Purpose purpose, MLIRContext &context,
                   bool readWeights, std::vector<std::string> *remarks,
                   bool allRemarks, int64_t memoryLimit) {
  if (config.target.memory > 0)
    memoryLimit = std::llround(std::ldexp(config.target.memory, 30));
  auto attempt = [&](const Config &config,
                     bool isLast) -> std::optional<Lowered> {
    Lowered lowered = lowerOnce(path, config, mesh, purpose, context,
                                readWeights, remarks, allRemarks, memoryLimit);
    Diagnostics diagnostics(context);
    auto program =
        target::emitProgram(*lowered.module, programOptions(lowered.backend));
    if (succeeded(program))
      lowered.program = std::move(*program);
    else if (isLast)
      diagnostics.fail(BadUsage);
    else
      return std::nullopt;
    return lowered;
  };
  // How much room the stages of a pipeline have is known only when it is
  // emitted.
  bool mayFitPlain = memoryLimit > 0 && config.target.overlap &&
                     purpose != Purpose::Infer && isPipelined(config, mesh);
  if (auto lowered = attempt(config, !mayFitPlain))
    return std::move(*lowered);
  if (remarks)
    remarks->clear();
  Config plain = config;
  plain.target.overlap = false;
  return std::move(*attempt(plain, true));
}

/// What cannot be written to is known before anything is compiled.
static void requireWritable(const fs::path &folder, const std::string &advice) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    throw Failure(BadUsage, folder.string() + ": is no folder; " + advice);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw Failure(BadUsage, folder.string() + ": cannot be written to: " +
                                std::strerror(errno) + "; " + advice);
}

// Only a folder that is a program itself is replaced.
static void checkOutputFolder(const std::string &folder) {
  std::error_code error;
  const char *temporary = std::getenv("TMPDIR");
  requireWritable(temporary && *temporary ? temporary : "/tmp",
                  "set TMPDIR to a folder that can be written");
  fs::path parent = fs::absolute(folder).lexically_normal();
  if (!parent.has_filename()) // it ends with a slash
    parent = parent.parent_path();
  do // those that are not there are made
    parent = parent.parent_path();
  while (!fs::exists(parent, error) && parent.has_relative_path());
  requireWritable(parent, "give another -o");
  if (!fs::exists(folder, error))
    return;
  if (!fs::is_directory(folder, error))
    throw Failure(BadUsage,
                  folder + ": exists and is no folder; give another -o");
  auto holds = [&](const char *file) {
    return fs::exists(fs::path(folder) / file, error);
  };
  // Others have a manifest.json, too.
  if (!fs::is_empty(folder, error) &&
      !(holds("manifest.json") && holds("program.bin")))
    throw Failure(BadUsage, folder + ": the folder exists and is no compiled "
                                     "program; give another -o");
}

namespace {

/// A model that is read several times: what it was imported from, what its
/// digests are of, and what a cache calls it, are one file.
class Unchanged {
public:
  Unchanged(const std::string &path, const Config &config) : path(path) {
    files.push_back(path);
    if (StringRef(path).ends_with(".mlir")) {
      note();
      return;
    }
    MLIRContext context;
    Diagnostics diagnostics(context);
    FailureOr<std::vector<std::string>> external =
        externalFilesOf(path, context, limitsOf(config));
    if (failed(external))
      diagnostics.fail(BadUsage);
    for (const std::string &file : *external)
      files.push_back((fs::absolute(path).parent_path() / file).string());
    note();
  }

  /// Size and time of each file of weights.
  std::string weights() const {
    return llvm::join(ArrayRef(noted).drop_front(), "");
  }

  void check() {
    std::vector<std::string> before = noted;
    note();
    if (noted != before)
      throw Failure(BadUsage, path +
                                  ": has changed while it was compiled, or its "
                                  "weights have; run the command again");
  }

private:
  void note() {
    std::error_code error;
    noted.clear();
    for (const std::string &file : files) {
      auto time = fs::last_write_time(file, error).time_since_epoch();
      noted.push_back(file + ":" + std::to_string(time.count()) + ":" +
                      std::to_string(fs::file_size(file, error)) + ":");
    }
  }

  std::string path;
  std::vector<std::string> files, noted;
};

} // namespace

void compileModel(const std::string &path, const Config &config,
                  const Mesh &mesh, Purpose purpose, bool readWeights,
                  const std::string &folder) {
  checkOutputFolder(folder);
  requireFile(path, "a model");
  Unchanged model(path, config);
  MLIRContext context;
  registerAll(context);
  // What runs here must fit here; `compile` may be for another machine, and
  // the memory of other devices is known when they are there.
  bool isHere =
      purpose != Purpose::Compile && deviceOf(config) == program::Device::Cpu;
  int64_t limit = isHere ? memoryOfRank(mesh) : 0;
  Lowered lowered = lowerModel(path, config, mesh, purpose, context,
                               readWeights, nullptr, false, limit);
  Diagnostics diagnostics(context);
  target::KernelOptions kernels;
  kernels.architectures = config.target.architectures;
  if (failed(target::writeArtifact(*lowered.module, lowered.program,
                                   lowered.info, kernels, folder)))
    diagnostics.fail(RunFailed);
  try {
    model.check();
  } catch (const Failure &) {
    std::error_code error;
    fs::remove_all(folder, error);
    throw;
  }
}

static std::string readFile(const std::string &path) {
  std::string text, reason;
  if (!readInput(path, text, reason))
    throw Failure(BadUsage, path + ": cannot be read: " + reason);
  return text;
}

std::string compileCached(const std::string &path, const Config &config,
                          const Mesh &mesh, Purpose purpose,
                          const std::string &cache) {
  std::error_code error;
  requireFile(path, "a model");
  Unchanged model(path, config);
  // What the artifact depends on; where the data lies, and for how many steps
  // it trains, is said when it runs.
  Config keyed = config;
  keyed.data.path.clear();
  keyed.train.steps = 0;
  llvm::SHA256 hash;
  for (const std::string &part :
       {std::string(CLEAVE_VERSION), readFile(path),
        fs::absolute(path).lexically_normal().string(), writeConfigJson(keyed),
        std::to_string(threadsPerRank(config, mesh)),
        std::to_string(static_cast<int>(purpose))}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  // Bytes of weights say which parameters are tied, and what constants are.
  hash.update(model.weights());
  for (const std::string &file :
       {config.parallel.pipeline.table, config.target.cluster})
    if (!file.empty() && fs::exists(file, error)) // else refused further on
      hash.update(readFile(file) + ":");
  for (const auto &[name, value] : config.data.bind)
    if (fs::exists(value, error)) // else it is no file, or refused further on
      hash.update(readFile(value) + ":");
  // What kernels are written as.
  if (deviceOf(config) == program::Device::Cuda)
    hash.update(codegen::findPtxas().value_or("no ptxas") +
                (target::wantsHostKernels() ? ", host" : ""));
  // The compiler itself: a rebuilt one compiles again.
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  hash.update(std::to_string(
      fs::last_write_time(self, error).time_since_epoch().count()));
  auto digest = hash.final();
  // Folders that begin with a dot are no entries, and names have an end.
  std::string stem = fs::path(path).stem().string().substr(0, 64);
  if (stem.starts_with("."))
    stem[0] = '_';
  return Cache(cache).find(
      stem + "-" + llvm::toHex(digest, /*LowerCase=*/true).substr(0, 16),
      [&](const std::string &folder) {
        WarningRecord record;
        compileModel(path, config, mesh, purpose, /*readWeights=*/true, folder);
        model.check();
        return record.text;
      });
}

} // namespace cleave::driver
