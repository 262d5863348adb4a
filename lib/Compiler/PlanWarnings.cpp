// Warns about idle ranks, idle time and padding.

#include "cleave/Compiler/PlanWarnings.h"

#include "cleave/Compiler/Pipelined.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/PipelineSchedule/Replay.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>
#include <optional>

using namespace mlir;

namespace cleave::compiler {

namespace {

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

/// Returns the number of samples of a call, from the first input of the model
/// with a batch dimension.
int64_t samplesOf(ModuleOp model) {
  for (StringRef name : {nn::kForwardFunc, nn::kLossGradFunc})
    if (auto func = model.lookupSymbol<func::FuncOp>(name))
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        if (auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[i]))
          if (auto dim = nn::batchDimOf(func.getArgAttrDict(i), type.getRank()))
            return type.getDimSize(*dim);
  return 0;
}

void warnOfIdleRanks(ModuleOp model, const Config &config, const Mesh &mesh) {
  constexpr double most = 0.1;
  int64_t samples = samplesOf(model), ways = 1;
  for (const std::string &axis : boundaryAxes(config, mesh).samples)
    ways *= mesh.size(axis);
  if (samples == 0 || samples % ways == 0)
    return;
  // If `ways` does not divide the samples, the first ranks get the most, and
  // the tiles of all ranks are as large as theirs.
  int64_t each = dist::tileSize(samples, ways), room = each * ways;
  int64_t used = (samples + each - 1) / each;
  int64_t idle = mesh.ranks() / ways * (ways - used);
  bool isParts = config.train.microbatches > 1;
  StringRef what = isParts ? "a microbatch" : "the batch";
  if (idle > 0)
    emitWarning(model.getLoc())
        << idle << " of " << mesh.ranks()
        << (idle == 1 ? " ranks has no sample: " : " ranks have no sample: ")
        << what << " of " << samples << " is split over " << ways << " ranks, "
        << each << " each; use fewer ranks, or a dims.batch that "
        << "divides by them" << (isParts ? " and by train.microbatches" : "");
  else if (1 - double(samples) / room > most)
    emitWarning(model.getLoc())
        << what << " of " << samples << " over " << ways
        << " ranks is padded to " << room << ": "
        << percent(1 - double(samples) / room)
        << " of the work is wasted; use a dims.batch that is a multiple of "
        << ways << (isParts ? " times train.microbatches" : "");
}

std::optional<double> bubbleOf(const Config &config, const Mesh &mesh) {
  const PipelineConfig &asked = config.parallel.pipeline;
  auto table =
      pipeline::generate({asked.schedule, int(mesh.size(asked.axis)),
                          int(asked.chunks), int(config.train.microbatches)});
  if (!table)
    return std::nullopt;
  auto replay = pipeline::replay(*table);
  if (!replay)
    return std::nullopt;
  return replay->bubbleFraction;
}

void warnOfBubble(ModuleOp model, const Config &config, const Mesh &mesh) {
  constexpr double most = 0.3, good = 0.15;
  std::optional<double> bubble = bubbleOf(config, mesh);
  if (!bubble || *bubble <= most)
    return;
  std::string advice;
  Config more = config;
  for (int64_t factor = 2; factor <= 64; factor *= 2) {
    more.train.microbatches = config.train.microbatches * factor;
    std::optional<double> then = bubbleOf(more, mesh);
    if (!then)
      break;
    advice = "; with train.microbatches = " +
             std::to_string(more.train.microbatches) + " it would be " +
             percent(*then);
    if (*then <= good)
      break;
  }
  emitWarning(model.getLoc())
      << "bubble " << percent(*bubble) << ": the ranks of the pipeline ("
      << config.parallel.pipeline.schedule << ", " << config.train.microbatches
      << (config.train.microbatches == 1 ? " microbatch" : " microbatches")
      << ") wait for each other" << advice;
}

} // namespace

void warnOfPlan(ModuleOp model, const Config &config, const Mesh &mesh) {
  warnOfIdleRanks(model, config, mesh);
  // There is no warning for a pipeline schedule that the user wrote.
  if (isPipelined(config, mesh) &&
      config.parallel.pipeline.schedule != "custom")
    warnOfBubble(model, config, mesh);
}

void warnOfEmptyStages(ArrayRef<OwningOpRef<ModuleOp>> stages) {
  int64_t empty = 0;
  for (const OwningOpRef<ModuleOp> &stage : stages) {
    bool holds = false;
    for (auto func : stage.get().getOps<func::FuncOp>())
      for (unsigned i = 0; i < func.getNumArguments(); ++i) {
        holds |= nn::roleOf(func, i) == nn::Role::Parameter ||
                 func.getArgAttr(i, nn::kFrozenAttr);
      }
    empty += !holds;
  }
  if (empty)
    emitWarning(stages.front().get().getLoc())
        << empty << " of " << stages.size()
        << (empty == 1 ? " stages is empty" : " stages are empty")
        << " (without parameters): the model has fewer layers than the "
           "pipeline "
           "has stages; use fewer";
}

void warnOfPadding(ModuleOp module, const Config &config) {
  constexpr double most = 0.1;
  auto meshes = module.getOps<dist::MeshOp>();
  if (meshes.empty())
    return;
  dist::MeshAttr mesh = (*meshes.begin()).getMesh();
  struct Waste {
    int64_t parameters = 0;
    std::string first;
  };
  std::map<std::string, Waste> found; // by the text of the warning
  int64_t all = 0, wasted = 0;
  llvm::StringSet<> seen;
  for (auto func : module.getOps<func::FuncOp>()) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      StringRef name = nn::nameOf(func, i);
      if (nn::roleOf(func, i) != nn::Role::Parameter || name.empty() ||
          !seen.insert(name).second)
        continue;
      auto local = cast<RankedTensorType>(func.getArgumentTypes()[i]);
      auto sharding =
          func.getArgAttrOfType<dist::ShardingAttr>(i, dist::kShardingAttrName);
      auto whole =
          func.getArgAttrOfType<TypeAttr>(i, dist::kGlobalTypeAttrName);
      if (!sharding || !whole)
        continue;
      auto global = cast<RankedTensorType>(whole.getValue());
      double grown = 1;
      std::string texts;
      for (auto [dim, axes] : llvm::enumerate(sharding.getDims())) {
        int64_t ways = dist::axesSize(mesh, axes.getAxes());
        int64_t size = global.getDimSize(dim);
        int64_t padded = local.getDimSize(dim) * ways;
        // The passes of tensor parallelism report the padding of its axes.
        bool isSaid = llvm::any_of(axes.getAxes(), [&](dist::AxisRefAttr axis) {
          StringRef name = axis.getName().getValue();
          return name == config.parallel.tensor.axis ||
                 llvm::is_contained(config.parallel.tensor.axes, name);
        });
        if (padded <= size || isSaid)
          continue;
        grown *= double(padded) / size;
        std::string names;
        for (dist::AxisRefAttr axis : axes.getAxes())
          names += (names.empty() ? "'" : ", '") +
                   axis.getName().getValue().str() + "'";
        texts = std::to_string(size) + " over " + std::to_string(ways) +
                " ranks of " + names + " is padded to " +
                std::to_string(padded) + ", " +
                percent(1 - double(size) / padded) + " of it is wasted";
      }
      all += global.getNumElements();
      if (1 - 1 / grown <= most)
        continue;
      wasted += std::llround(global.getNumElements() * (grown - 1));
      Waste &entry = found[texts];
      if (entry.parameters++ == 0)
        entry.first = name.str();
    }
  }
  // The padding of a few small parameters is not reported.
  if (wasted <= all * 0.02)
    return;
  for (const auto &[text, waste] : found) {
    InFlightDiagnostic warning = emitWarning(module.getLoc());
    warning << text << " ('" << waste.first << "'";
    if (waste.parameters > 1)
      warning << " and " << waste.parameters - 1 << " more";
    warning << "); choose a number of ranks that divides it";
  }
}

} // namespace cleave::compiler
