// Turns a program on unsharded tensors into a per-rank program: adds the mesh
// with its links, runs a pass for each parallelization strategy in the
// configuration, and then runs the partitioner.

#include "cleave/Compiler/Phases.h"
#include "cleave/Compiler/Sharded.h"

#include "cleave/Actions/Passes.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Strategy/Passes.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"

#include "mlir/Pass/PassManager.h"

#include <limits>
#include <map>

using namespace mlir;

namespace cleave::compiler {

/// Returns the entry of `parallel.sequence` for ring attention (kind ring), if
/// its mesh axis has several ranks; otherwise null.
static const SequenceParallelConfig *ringOf(const Config &config,
                                            const Mesh &mesh) {
  for (const SequenceParallelConfig &entry : config.parallel.sequence)
    if (entry.kind == "ring" && mesh.size(entry.axis) > 1)
      return &entry;
  return nullptr;
}

LogicalResult orderPositions(ModuleOp module, const Config &config,
                             const Mesh &mesh, StringRef phase) {
  const SequenceParallelConfig *ring = ringOf(config, mesh);
  if (!ring || ring->order != "zigzag")
    return success();
  return runPasses(module, (phase + "-order").str(),
                   [&](OpPassManager &passes) {
                     StrategyZigzagPassOptions options;
                     options.ranks = mesh.size(ring->axis);
                     passes.addPass(createStrategyZigzagPass(options));
                   });
}

/// Returns the link class of each mesh axis, and for each axis the number of
/// consecutive ranks along the axis that share a node. The link class is
/// "intra" if every group of ranks along the axis is within a node, and
/// otherwise "inter".
static std::pair<std::vector<std::string>, std::vector<int64_t>>
linkClasses(int64_t perNode, const Mesh &mesh) {
  std::vector<std::string> links(mesh.axes.size(), "intra");
  std::vector<int64_t> within;
  for (const auto &[name, size] : mesh.axes)
    within.push_back(size);
  int64_t span = 1;
  for (size_t axis = mesh.axes.size(); perNode && axis-- > 0;) {
    const auto &[name, size] = mesh.axes[axis];
    while (within[axis] > 1 &&
           (size % within[axis] || perNode % (span * within[axis])))
      --within[axis];
    span *= size;
    if (size > 1 && perNode % span != 0)
      links[axis] = "inter";
  }
  return {links, within};
}

/// Warns about a mesh axis that spans several nodes if every layer has
/// collectives over this axis, because these are slow.
static void warnAboutLinks(ModuleOp module, const Config &config,
                           const Mesh &mesh, int64_t perNode) {
  const auto &tensor = config.parallel.tensor;
  std::map<std::string, std::string> sentOver; // by axis: what is sent
  bool megatron = false;
  for (const SequenceParallelConfig &sequence : config.parallel.sequence) {
    megatron |= sequence.kind == "megatron";
    if (sequence.kind == "ulysses")
      sentOver[sequence.axis] = "all-to-alls of every attention";
    else if (sequence.kind == "ring")
      sentOver[sequence.axis] = "keys and values of every attention";
  }
  bool sums = tensor.layout == "1d" && !megatron;
  std::vector<std::string> used = tensor.axes;
  if (tensor.layout == "1d")
    used = {tensor.axis};
  if (tensor.enabled)
    for (const std::string &axis : used)
      sentOver[axis] = sums ? "all-reduces of every layer"
                            : "gathers and sums of every layer";
  std::vector<std::string> links = linkClasses(perNode, mesh).first;
  for (auto [axis, link] : llvm::zip(mesh.axes, links))
    if (auto found = sentOver.find(axis.first);
        found != sentOver.end() && link == "inter")
      emitWarning(module.getLoc())
          << "axis '" << axis.first << "' of " << axis.second
          << " ranks spans nodes of " << perNode
          << " (mesh.ranks_per_node): the " << found->second
          << " cross the slower links; make it smaller, or faster in mesh.axes";
}

/// Returns the mesh axis over which a tensor-parallel layout shards attention
/// heads.
static std::string featureAxis(const TensorParallelConfig &tensor) {
  if (tensor.layout == "1d")
    return tensor.axis;
  return tensor.layout == "2.5d" ? tensor.axes[2] : tensor.axes[1];
}

/// Parses a mesh axis, such as "x", or a sub-axis in Shardy's syntax, such as
/// "x:(1)2", which has pre-size 1 and size 2.
static FailureOr<dist::AxisRefAttr> axisNamed(MLIRContext *context,
                                              StringRef text) {
  auto [name, part] = text.split(':');
  int64_t before = 1, size = 0;
  StringRef rest = part;
  if (name.size() != text.size() &&
      (!rest.consume_front("(") || rest.consumeInteger(10, before) ||
       !rest.consume_front(")") || rest.consumeInteger(10, size) ||
       !rest.empty() || before < 1 || size < 1 ||
       before > std::numeric_limits<int32_t>::max() / size))
    return configError(context)
           << "[[shard]] dims: axis '" << text
           << "': expected NAME, or NAME:(BEFORE)SIZE for a part of an axis";
  return dist::AxisRefAttr::get(context, StringAttr::get(context, name), before,
                                size);
}

/// Adds the shardings that the user requests in the configuration ([[shard]])
/// to the module, as an attribute that the pass strategy-shard reads.
static LogicalResult noteOverrides(ModuleOp module, const Config &config) {
  MLIRContext *context = module.getContext();
  Builder builder(context);
  SmallVector<Attribute> list;
  for (const ShardConfig &shard : config.shard) {
    SmallVector<Attribute> dims;
    for (const std::vector<std::string> &dim : shard.dims) {
      SmallVector<dist::AxisRefAttr> axes;
      for (const std::string &text : dim) {
        FailureOr<dist::AxisRefAttr> axis = axisNamed(context, text);
        if (failed(axis))
          return failure();
        axes.push_back(*axis);
      }
      dims.push_back(dist::AxisListAttr::get(context, axes));
    }
    list.push_back(nn::ShardAttr::get(
        context, builder.getStringAttr(shard.match), builder.getArrayAttr(dims),
        shard.view.empty() ? DenseI64ArrayAttr()
                           : builder.getDenseI64ArrayAttr(shard.view)));
  }
  if (!list.empty())
    module->setAttr(kShardAttr, builder.getArrayAttr(list));
  return success();
}

/// Returns whether tensor parallelism shards anything on this mesh.
static bool splitsTensor(const Config &config, const Mesh &mesh) {
  const TensorParallelConfig &tensor = config.parallel.tensor;
  auto has = [&](const std::string &name) { return mesh.size(name) > 1; };
  return tensor.enabled &&
         (tensor.layout == "1d" ? has(tensor.axis)
                                : llvm::any_of(tensor.axes, has));
}

/// Adds the mesh, with the link classes of its axes.
static void addMesh(ModuleOp module, const Mesh &mesh, int64_t perNode) {
  MLIRContext *context = module.getContext();
  OpBuilder builder(context);
  builder.setInsertionPointToStart(module.getBody());
  SmallVector<dist::MeshAxisAttr> axes;
  for (const auto &[name, size] : mesh.axes)
    axes.push_back(
        dist::MeshAxisAttr::get(context, builder.getStringAttr(name), size));
  if (axes.empty()) // there is only one rank
    axes.push_back(
        dist::MeshAxisAttr::get(context, builder.getStringAttr("data"), 1));
  auto [links, within] = linkClasses(perNode, mesh);
  links.resize(axes.size(), "intra");
  within.resize(axes.size(), 1);
  dist::MeshOp::create(
      builder, module.getLoc(), "mesh", dist::MeshAttr::get(context, axes),
      builder.getStrArrayAttr(
          SmallVector<StringRef>(links.begin(), links.end())),
      llvm::is_contained(links, "inter") ? builder.getDenseI64ArrayAttr(within)
                                         : DenseI64ArrayAttr());
}

static void addTensorPass(OpPassManager &passes, const Config &config,
                          const Mesh &mesh, const BoundaryAxes &boundary) {
  if (!splitsTensor(config, mesh))
    return;
  const TensorParallelConfig &parallel = config.parallel.tensor;
  StrategyTensorPassOptions tensor;
  tensor.axis = parallel.axis;
  tensor.layout = parallel.layout;
  tensor.axes = llvm::to_vector(parallel.axes);
  tensor.batchAxes = llvm::to_vector(boundary.samples);
  tensor.sequenceAxes = llvm::to_vector(boundary.positions);
  for (const SequenceParallelConfig &sequence : config.parallel.sequence)
    if (sequence.kind == "megatron") {
      tensor.sequence = true;
      tensor.savedInput = sequence.savedInput;
    }
  passes.addPass(createStrategyTensorPass(tensor));
}

/// Adds the pass for expert parallelism if experts are sharded. With
/// `required`, it is an error if the model has no experts.
static void addExpertPass(OpPassManager &passes, const Config &config,
                          const Mesh &mesh, bool required,
                          PartitionOptions &partition) {
  const TensorParallelConfig &parallel = config.parallel.tensor;
  const ExpertParallelConfig &expert = config.parallel.expert;
  bool splitsExperts = expert.enabled && mesh.size(expert.axis) > 1;
  // If tensor parallelism (1d) uses the same axis, it already shards the
  // weights of the experts like other weights.
  bool splitsWidth = expert.enabled && mesh.size(expert.tensorAxis) > 1 &&
                     !(parallel.enabled && parallel.layout == "1d" &&
                       parallel.axis == expert.tensorAxis);
  if (splitsExperts || splitsWidth) {
    StrategyExpertPassOptions options;
    options.axis = splitsExperts ? expert.axis : "";
    if (splitsWidth)
      options.tensorAxis = expert.tensorAxis;
    options.required = required;
    passes.addPass(createStrategyExpertPass(options));
  }
  if (splitsExperts)
    partition.experts = expert.axis, partition.maxLoad = expert.maxLoad,
    partition.exchange = expert.exchange;
}

static void addSequencePass(OpPassManager &passes, const Config &config,
                            const Mesh &mesh, const BoundaryAxes &boundary,
                            PartitionOptions &partition) {
  if (boundary.positions.empty())
    return;
  StrategySequencePassOptions options;
  options.ulysses = sequenceAxis(config, mesh, "ulysses");
  options.ring = sequenceAxis(config, mesh, "ring");
  if (splitsTensor(config, mesh))
    options.featureAxes.push_back(featureAxis(config.parallel.tensor));
  if (const SequenceParallelConfig *ring = ringOf(config, mesh)) {
    partition.rings.push_back(ring->axis);
    partition.ringPlan = ring->plan;
  }
  passes.addPass(createStrategySequencePass(options));
}

static void addDataPass(OpPassManager &passes, const Config &config,
                        const BoundaryAxes &boundary,
                        PartitionOptions &partition) {
  if (boundary.all().empty())
    return;
  const DataParallelConfig &data = config.parallel.data;
  StrategyDataPassOptions options;
  options.batchAxes = llvm::to_vector(boundary.samples);
  options.sequenceAxes = llvm::to_vector(boundary.positions);
  // If every axis over which ZeRO could shard parameters has a single rank,
  // ZeRO and hybrid sharding have no effect: samples are sharded, and
  // parameters replicated.
  if (!boundary.sharded().empty()) {
    options.replicate = llvm::to_vector(boundary.replicas);
    options.zero = data.enabled ? data.zero : 0;
  }
  options.zero2Reduce = data.zero2Reduce;
  passes.addPass(createStrategyDataPass(options));
  if (!data.reshardAfterForward)
    partition.keepParameters = llvm::to_vector(boundary.sharded());
}

/// Adds to `partition` the passes and options for a pipeline stage. `stage` and
/// `config` must outlive `partition`.
static void noteStage(const StageOptions &stage, const Config &config,
                      PartitionOptions &partition) {
  partition.afterPropagation = [&stage, &config](OpPassManager &passes) {
    DistSplitHandoversPassOptions handovers;
    handovers.previous = stage.previousLink;
    handovers.next = stage.nextLink;
    handovers.cluster = clusterNameOf(config);
    passes.addPass(createDistSplitHandoversPass(handovers));
  };
  partition.beforeBuckets = [&stage](OpPassManager &passes) {
    MarkActionsPassOptions actions;
    actions.weightsApart = stage.weightsApart;
    passes.addPass(createMarkActionsPass(actions));
  };
  llvm::append_range(partition.keepParameters, stage.gatheredAxes);
}

LogicalResult shard(ModuleOp module, const Config &config, const Mesh &mesh,
                    bool allRemarks, const StageOptions *stage) {
  MLIRContext *context = module.getContext();
  bool mixed = config.train.precision == "bf16";
  PartitionOptions partition;
  partition.remarks = allRemarks;
  partition.cluster = clusterNameOf(config);
  partition.chunks = config.target.overlap;
  if (isSharded(module)) {
    if (mixed)
      return configError(context)
             << "train.precision = \"bf16\" is not yet supported for models "
                "with shardings of their own: their tensors have the types "
                "that the file gives them; leave it out";
    if (mesh.ranks() > 1) { // the model's own shardings are used as they are
      return runPasses(module, "shard", [&](OpPassManager &passes) {
        buildPartitionPipeline(passes, partition);
      });
    }
    removeShardings(module);
  }
  FailureOr<int64_t> perNode = ranksPerNode(config, context);
  if (failed(perNode) ||
      (!stage && failed(orderPositions(module, config, mesh, "shard"))))
    return failure();
  addMesh(module, mesh, *perNode);
  warnAboutLinks(module, config, mesh, *perNode);
  // With one rank there is nothing to shard, so [[shard]] is ignored. `cleave
  // check` compiles its reference for one rank with the same configuration.
  bool overrides = !config.shard.empty() && mesh.ranks() > 1;
  if (overrides && failed(noteOverrides(module, config)))
    return failure();
  std::string phase =
      stage ? "shard-stage" + std::to_string(stage->index) : "shard";
  return runPasses(module, phase, [&](OpPassManager &passes) {
    BoundaryAxes boundary = boundaryAxes(config, mesh);
    addTensorPass(passes, config, mesh, boundary);
    addExpertPass(passes, config, mesh, /*required=*/!stage, partition);
    if (overrides)
      passes.addPass(createStrategyShardPass());
    addSequencePass(passes, config, mesh, boundary, partition);
    addDataPass(passes, config, boundary, partition);
    if (stage)
      noteStage(*stage, config, partition);
    // 3D tensor parallelism gathers parameters over its first axis in the
    // forward pass, and keeps the gathered parameters for the backward pass.
    if (splitsTensor(config, mesh) && config.parallel.tensor.layout == "3d")
      partition.keepParameters.push_back(config.parallel.tensor.axes[0]);
    // Rounds parameters to bf16 before they are gathered. This pass runs after
    // those of the strategies, which look for products that read parameters
    // directly.
    if (mixed)
      passes.addPass(createMixedPrecisionPass());
    buildPartitionPipeline(passes, partition);
  });
}

} // namespace cleave::compiler
