// The phases, put together from their passes.

#include "Phases.h"

#include "NnModel.h"
#include "ShardedModel.h"

#include "cleave/Actions/Passes.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Strategy/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <filesystem>
#include <limits>
#include <map>

using namespace mlir;

namespace cleave::driver {

static void run(PassManager &passes, ModuleOp module,
                Diagnostics &diagnostics) {
  if (failed(passes.run(module)))
    diagnostics.fail(BadUsage);
}

/// What can be read from .mlir but does not run: the runtime takes a list of
/// commands on tensors.
static void checkOperations(ModuleOp module, const std::string &path) {
  auto nameOf = [&](Operation *op) {
    auto at = dyn_cast<FileLineColLoc>(op->getLoc());
    std::string where = at ? path + ":" + std::to_string(at.getLine()) + ":" +
                                 std::to_string(at.getColumn())
                           : "model '" + path + "'";
    return where + ": '" + op->getName().getStringRef().str() + "'";
  };
  // The loop is to blame, not its bounds.
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op->getNumRegions() != 0 && !isa<ModuleOp, func::FuncOp>(op))
      throw Failure(BadUsage, nameOf(op) +
                                  " is not yet supported: loops and branches "
                                  "of models with shardings of their own are "
                                  "partitioned and interpreted (check "
                                  "--interpret), but do not run; unroll them");
  });
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (!isa<RankedTensorType>(type)) {
        std::string found;
        llvm::raw_string_ostream(found) << type;
        throw Failure(BadUsage, nameOf(op) + " gives a value of type " + found +
                                    "; expected tensors alone");
      }
  });
}

/// Tensors without elements: no phase after this one expects them.
static void checkSizes(ModuleOp module, Diagnostics &diagnostics) {
  WalkResult walked = module.walk([](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          tensor && !op->use_empty() &&
          llvm::is_contained(tensor.getShape(), 0)) {
        op->emitOpError("gives ")
            << type
            << ", which has no elements; expected sizes of at least 1 "
               "in every dimension: leave out what computes it";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    diagnostics.fail(BadUsage);
}

/// Experts have no room for more than so many slots. Where samples share that
/// room, an output of one depends on all of its call.
static void limitChoices(ModuleOp module, const Config &config,
                         Diagnostics &diagnostics) {
  if (config.parallel.expert.capacity == 0)
    return;
  PassManager passes(module.getContext());
  LimitChoicesPassOptions options;
  options.capacity = config.parallel.expert.capacity;
  options.scope = config.parallel.expert.capacityScope;
  passes.addNestedPass<func::FuncOp>(createLimitChoicesPass(options));
  if (options.scope == "microbatch")
    passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
  run(passes, module, diagnostics);
}

OwningOpRef<ModuleOp> loadModel(const std::string &path, const Config &config,
                                MLIRContext &context, bool readWeights,
                                bool compiles) {
  requireFile(path, "a model");
  if (!StringRef(path).ends_with(".mlir")) {
    std::optional<int64_t> batch;
    if (auto found = config.dims.find("batch"); found != config.dims.end()) {
      if (found->second % config.train.microbatches)
        throw Failure(BadUsage,
                      "dims.batch = " + std::to_string(found->second) +
                          " does not divide by train.microbatches = " +
                          std::to_string(config.train.microbatches));
      batch = found->second / config.train.microbatches;
    }
    OwningOpRef<ModuleOp> module =
        importModel(path, config, context, batch, readWeights);
    Diagnostics diagnostics(context);
    checkSizes(*module, diagnostics);
    limitChoices(*module, config, diagnostics);
    return module;
  }
  Diagnostics diagnostics(context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
  if (!module)
    diagnostics.fail(BadUsage);
  if (compiles || !isSharded(*module))
    checkOperations(*module, path);
  checkSizes(*module, diagnostics);
  if (isSharded(*module)) {
    prepareSharded(*module, path, config);
    return module;
  }
  checkNnModel(*module, path, config);
  PassManager passes(&context);
  passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
  run(passes, *module, diagnostics);
  limitChoices(*module, config, diagnostics);
  return module;
}

/// A loss inside the model reads labels only through one of its inputs.
static void checkLabels(ModuleOp module, const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  if (!forward || config.data.labels == "next" ||
      !StringRef(config.train.loss).starts_with("output:"))
    return;
  std::string names;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto text = [&](StringRef key) {
      auto value = forward.getArgAttrOfType<StringAttr>(i, key);
      return value ? value.getValue() : StringRef();
    };
    StringRef role = text(nn::kRoleAttr);
    if (role == "labels")
      return;
    if (role == "tokens" || role == "input")
      names +=
          ((names.empty() ? "'" : ", '") + text(nn::kNameAttr) + "'").str();
  }
  throw Failure(BadUsage,
                "data.labels = '" + config.data.labels +
                    "' is read by nothing: train.loss = '" + config.train.loss +
                    "' is computed in the model, whose inputs are " + names +
                    "; name one of them, or leave data.labels out");
}

/// Labels that are the next tokens teach nothing where attention reads those.
static void warnAboutLaterTokens(ModuleOp module, const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  if (!forward || config.data.labels != "next" ||
      config.train.loss != "cross_entropy")
    return;
  int64_t length = 0;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto type = cast<RankedTensorType>(forward.getArgumentTypes()[i]);
    auto role = forward.getArgAttrOfType<StringAttr>(i, nn::kRoleAttr);
    if (role && role.getValue() == "tokens" && type.getRank() > 1)
      length = type.getDimSize(1);
  }
  // One label for a sample, as of classes, is no token.
  bool perToken = false;
  for (unsigned i = 0; i < forward.getNumResults(); ++i) {
    auto type = dyn_cast<RankedTensorType>(forward.getResultTypes()[i]);
    auto name = forward.getResultAttrOfType<StringAttr>(i, nn::kNameAttr);
    bool isLogits = config.train.logits.empty() ||
                    (name && name.getValue() == config.train.logits);
    perToken |=
        isLogits && type && type.getRank() > 2 && type.getDimSize(1) == length;
  }
  if (!perToken)
    return;
  int64_t count = 0;
  forward.walk([&](nn::AttentionOp attention) {
    int64_t queries = attention.getQuery().getType().getDimSize(1);
    int64_t keys = attention.getKey().getType().getDimSize(1);
    // A mask of keys is the same for all queries; a bias could hide later ones.
    count += !attention.getCausal() && !attention.getBias() && length > 1 &&
             queries == length && keys == length;
  });
  if (count)
    emitWarning(forward.getLoc())
        << count << (count == 1 ? " attention sees" : " attentions see")
        << " later tokens, which are the labels (data.labels = \"next\"): the "
           "loss falls without what it learns being of use; name an array of "
           "labels in data.labels, or train a model whose attention is causal";
}

void runLossPhase(ModuleOp module, const Config &config) {
  checkLabels(module, config);
  Diagnostics diagnostics(*module.getContext());
  warnAboutLaterTokens(module, config);
  PassManager passes(module.getContext());
  AddLossPassOptions loss;
  loss.loss = config.train.loss;
  loss.logits = config.train.logits;
  loss.ignoreIndex = config.data.ignoreIndex;
  loss.trainable = llvm::to_vector(config.train.trainable);
  loss.frozen = llvm::to_vector(config.train.frozen);
  passes.addPass(createAddLossPass(loss));
  AddDropoutPassOptions dropout;
  dropout.p = config.train.dropout;
  passes.addPass(createAddDropoutPass(dropout));
  AddRouterLossesPassOptions routers;
  routers.balance = config.parallel.expert.auxLoss;
  routers.squares = config.parallel.expert.zLoss;
  routers.scope = config.parallel.expert.auxScope;
  routers.ignoreIndex = config.data.ignoreIndex;
  passes.addPass(createAddRouterLossesPass(routers));
  run(passes, module, diagnostics);
}

void addCountPass(OpPassManager &passes, const Config &config) {
  CountChoicesPassOptions options;
  options.updateBiases = config.parallel.expert.biasUpdate > 0;
  passes.addPass(createCountChoicesPass(options));
}

void addTrainPasses(OpPassManager &passes, const Config &config,
                    bool tapGradients, bool updatesApart) {
  DifferentiatePassOptions differentiate;
  differentiate.accumulate = config.train.microbatches > 1;
  differentiate.apart = updatesApart;
  passes.addPass(createDifferentiatePass(differentiate));
  AddOptimizerPassOptions optimizer;
  optimizer.optimizer = config.train.optimizer;
  optimizer.beta1 = config.train.betas[0];
  optimizer.beta2 = config.train.betas[1];
  optimizer.epsilon = config.train.eps;
  optimizer.momentum = config.train.momentum;
  optimizer.weightDecay = config.train.weightDecay;
  optimizer.clipNorm = config.train.clipNorm;
  optimizer.noDecay = llvm::to_vector(config.train.noDecay);
  optimizer.skipNonfinite = config.train.onNan == "skip";
  optimizer.tapGradients = tapGradients;
  optimizer.updates = updatesApart ? config.train.microbatches : 0;
  passes.addPass(createAddOptimizerPass(optimizer));
  UpdateRouterBiasesPassOptions biases;
  biases.rate = config.parallel.expert.biasUpdate;
  passes.addPass(createUpdateRouterBiasesPass(biases));
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
}

void runTrainPhase(ModuleOp module, const Config &config, bool tapGradients) {
  runLossPhase(module, config);
  Diagnostics diagnostics(*module.getContext());
  PassManager passes(module.getContext());
  addCountPass(passes, config);
  addTrainPasses(passes, config, tapGradients);
  run(passes, module, diagnostics);
}

/// The entry of kind ring, if its axis splits anything.
static const SequenceParallelConfig *ringOf(const Config &config,
                                            const Mesh &mesh) {
  for (const SequenceParallelConfig &entry : config.parallel.sequence)
    if (entry.kind == "ring" && mesh.size(entry.axis) > 1)
      return &entry;
  return nullptr;
}

void runOrderPhase(ModuleOp module, const Config &config, const Mesh &mesh) {
  const SequenceParallelConfig *ring = ringOf(config, mesh);
  if (!ring || ring->order != "zigzag")
    return;
  Diagnostics diagnostics(*module.getContext());
  PassManager passes(module.getContext());
  StrategyZigzagPassOptions options;
  options.ranks = mesh.size(ring->axis);
  passes.addPass(createStrategyZigzagPass(options));
  run(passes, module, diagnostics);
}

std::string clusterNameOf(const Config &config) {
  if (config.target.cluster.empty() && config.target.kind == "cuda")
    return "h100-" + config.train.precision;
  return config.target.cluster;
}

Cluster clusterOf(const Config &config) {
  std::string name = clusterNameOf(config);
  if (name.empty())
    return Cluster();
  ConfigResult<Cluster> cluster = loadCluster(name);
  if (!cluster)
    throw Failure(BadUsage, cluster.error());
  return *cluster;
}

int64_t ranksPerNode(const Config &config) {
  return config.mesh.ranksPerNode ? config.mesh.ranksPerNode
                                  : clusterOf(config).ranksPerNode;
}

/// "intra" for an axis along which no rank leaves its node, "inter" for others;
/// and how many ranks next to each other on it share a node.
static std::pair<std::vector<std::string>, std::vector<int64_t>>
linkClasses(const Config &config, const Mesh &mesh) {
  std::vector<std::string> links(mesh.axes.size(), "intra");
  std::vector<int64_t> within;
  for (const auto &[name, size] : mesh.axes)
    within.push_back(size);
  int64_t perNode = ranksPerNode(config), span = 1;
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

/// Axes whose collectives stand in the way of every layer belong into a node.
static void warnAboutLinks(ModuleOp module, const Config &config,
                           const Mesh &mesh) {
  const auto &tensor = config.parallel.tensor;
  std::map<std::string, std::string> sentOver; // axis: what every layer sends
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
  std::vector<std::string> links = linkClasses(config, mesh).first;
  for (auto [axis, link] : llvm::zip(mesh.axes, links))
    if (auto found = sentOver.find(axis.first);
        found != sentOver.end() && link == "inter")
      emitWarning(module.getLoc())
          << "axis '" << axis.first << "' of " << axis.second
          << " ranks spans nodes of " << ranksPerNode(config)
          << " (mesh.ranks_per_node): the " << found->second
          << " cross the slower links; make it smaller, or faster in mesh.axes";
}

/// The axis over which a layout of tensor parallelism splits heads.
static std::string featureAxis(const TensorParallelConfig &tensor) {
  if (tensor.layout == "1d")
    return tensor.axis;
  return tensor.layout == "2.5d" ? tensor.axes[2] : tensor.axes[1];
}

/// "x" or "x:(1)2", the sub-axis with 1 block before it and size 2.
static dist::AxisRefAttr axisNamed(MLIRContext *context, StringRef text) {
  auto [name, part] = text.split(':');
  int64_t before = 1, size = 0;
  StringRef rest = part;
  if (name.size() != text.size() &&
      (!rest.consume_front("(") || rest.consumeInteger(10, before) ||
       !rest.consume_front(")") || rest.consumeInteger(10, size) ||
       !rest.empty() || before < 1 || size < 1 ||
       before > std::numeric_limits<int32_t>::max() / size))
    throw Failure(BadUsage, "[[shard]] dims: axis '" + text.str() +
                                "': expected NAME, or NAME:(BEFORE)SIZE for a "
                                "part of an axis");
  return dist::AxisRefAttr::get(context, StringAttr::get(context, name), before,
                                size);
}

/// The overrides of the configuration, for strategy-shard.
static void noteOverrides(ModuleOp module, const Config &config) {
  MLIRContext *context = module.getContext();
  Builder builder(context);
  SmallVector<Attribute> list;
  for (const ShardConfig &shard : config.shard) {
    SmallVector<Attribute> dims;
    for (const std::vector<std::string> &dim : shard.dims) {
      SmallVector<dist::AxisRefAttr> axes;
      for (const std::string &axis : dim)
        axes.push_back(axisNamed(context, axis));
      dims.push_back(dist::AxisListAttr::get(context, axes));
    }
    NamedAttrList entry;
    entry.set("match", builder.getStringAttr(shard.match));
    entry.set("dims", builder.getArrayAttr(dims));
    if (!shard.view.empty())
      entry.set("view", builder.getDenseI64ArrayAttr(shard.view));
    list.push_back(entry.getDictionary(context));
  }
  if (!list.empty())
    module->setAttr(kShardAttr, builder.getArrayAttr(list));
}

void runShardPhase(ModuleOp module, const Config &config, const Mesh &mesh,
                   std::vector<std::string> *remarks, bool allRemarks,
                   const StageOptions *stage) {
  MLIRContext *context = module.getContext();
  Diagnostics diagnostics(*context, remarks);
  bool mixed = config.train.precision == "bf16";
  if (isSharded(module)) {
    if (mixed)
      throw Failure(
          BadUsage,
          "train.precision = \"bf16\" is not yet supported for models "
          "with shardings of their own: their tensors have the "
          "types that the file gives them; leave it out");
    if (mesh.ranks() > 1) { // as it says; one rank splits nothing
      PassManager passes(context);
      PartitionOptions partition;
      partition.remarks = allRemarks;
      partition.cluster = clusterNameOf(config);
      partition.chunks = config.target.overlap;
      buildPartitionPipeline(passes, partition);
      run(passes, module, diagnostics);
      return;
    }
    removeShardings(module);
  }
  if (!stage)
    runOrderPhase(module, config, mesh);
  OpBuilder builder(context);
  builder.setInsertionPointToStart(module.getBody());
  SmallVector<dist::MeshAxisAttr> axes;
  for (const auto &[name, size] : mesh.axes)
    axes.push_back(
        dist::MeshAxisAttr::get(context, builder.getStringAttr(name), size));
  if (axes.empty()) // one rank
    axes.push_back(
        dist::MeshAxisAttr::get(context, builder.getStringAttr("data"), 1));
  auto [links, within] = linkClasses(config, mesh);
  links.resize(axes.size(), "intra");
  within.resize(axes.size(), 1);
  dist::MeshOp::create(
      builder, module.getLoc(), "mesh", dist::MeshAttr::get(context, axes),
      builder.getStrArrayAttr(
          SmallVector<StringRef>(links.begin(), links.end())),
      llvm::is_contained(links, "inter") ? builder.getDenseI64ArrayAttr(within)
                                         : DenseI64ArrayAttr());
  warnAboutLinks(module, config, mesh);
  PassManager passes(context);
  auto has = [&](const std::string &name) { return mesh.size(name) > 1; };
  const DataParallelConfig &data = config.parallel.data;
  BoundaryAxes boundary = boundaryAxes(config, mesh);
  const TensorParallelConfig &parallel = config.parallel.tensor;
  bool splitsTensor = parallel.layout == "1d"
                          ? has(parallel.axis)
                          : llvm::any_of(parallel.axes, has);
  if (parallel.enabled && splitsTensor) {
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
  const ExpertParallelConfig &expert = config.parallel.expert;
  bool splitsExperts = expert.enabled && has(expert.axis);
  // The tensor strategy splits experts like other weights, where it is on.
  bool splitsWidth = expert.enabled && has(expert.tensorAxis) &&
                     !(parallel.enabled && parallel.layout == "1d" &&
                       parallel.axis == expert.tensorAxis);
  if (splitsExperts || splitsWidth) {
    StrategyExpertPassOptions options;
    options.axis = splitsExperts ? expert.axis : "";
    if (splitsWidth)
      options.tensorAxis = expert.tensorAxis;
    options.required = !stage;
    passes.addPass(createStrategyExpertPass(options));
  }
  // One rank splits nothing: what `check` compares with.
  if (!config.shard.empty() && mesh.ranks() > 1) {
    noteOverrides(module, config);
    passes.addPass(createStrategyShardPass());
  }
  PartitionOptions partition;
  partition.remarks = allRemarks;
  partition.cluster = clusterNameOf(config);
  partition.chunks = config.target.overlap;
  if (splitsExperts)
    partition.experts = expert.axis, partition.maxLoad = expert.maxLoad,
    partition.exchange = expert.exchange;
  if (!boundary.positions.empty()) {
    StrategySequencePassOptions options;
    options.ulysses = sequenceAxis(config, mesh, "ulysses");
    options.ring = sequenceAxis(config, mesh, "ring");
    if (parallel.enabled && splitsTensor)
      options.featureAxes.push_back(featureAxis(parallel));
    if (const SequenceParallelConfig *ring = ringOf(config, mesh)) {
      partition.rings.push_back(ring->axis);
      partition.ringPlan = ring->plan;
    }
    passes.addPass(createStrategySequencePass(options));
  }
  if (!boundary.all().empty()) {
    StrategyDataPassOptions options;
    options.batchAxes = llvm::to_vector(boundary.samples);
    options.sequenceAxes = llvm::to_vector(boundary.positions);
    options.replicate = llvm::to_vector(boundary.replicas);
    options.zero = data.enabled ? data.zero : 0;
    options.zero2Reduce = data.zero2Reduce;
    passes.addPass(createStrategyDataPass(options));
    if (!data.reshardAfterForward)
      partition.keepParameters = llvm::to_vector(boundary.sharded());
  }
  if (stage) {
    partition.afterPropagation = [&](OpPassManager &passes) {
      DistSplitHandoversPassOptions handovers;
      handovers.previous = stage->previousLink;
      handovers.next = stage->nextLink;
      handovers.cluster = clusterNameOf(config);
      passes.addPass(createDistSplitHandoversPass(handovers));
    };
    partition.beforeBuckets = [stage](OpPassManager &passes) {
      MarkActionsPassOptions actions;
      actions.weightsApart = stage->weightsApart;
      passes.addPass(createMarkActionsPass(actions));
    };
  }
  if (stage)
    llvm::append_range(partition.keepParameters, stage->gatheredAxes);
  // 3D keeps what it gathered for products.
  if (parallel.enabled && splitsTensor && parallel.layout == "3d")
    partition.keepParameters.push_back(parallel.axes[0]);
  // Behind the strategies, which look for products with parameters, so that
  // what they ask to gather is rounded before.
  if (mixed)
    passes.addPass(createMixedPrecisionPass());
  buildPartitionPipeline(passes, partition);
  run(passes, module, diagnostics);
}

} // namespace cleave::driver
