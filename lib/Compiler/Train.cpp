// The compiler's phases before sharding: the loss, the gradients and the
// optimizer. Also has functions that read the description of the cluster, such
// as the number of ranks per node.

#include "cleave/Compiler/Phases.h"

#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace cleave::compiler {

static bool hasOutput(func::FuncOp forward, StringRef wanted) {
  for (unsigned i = 0; i < forward.getNumResults(); ++i)
    if (auto name = forward.getResultAttrOfType<StringAttr>(i, nn::kNameAttr);
        name && name.getValue() == wanted)
      return true;
  return false;
}

/// If the model itself computes the loss, the labels must be one of the model's
/// inputs. Reports an error if data.labels in the configuration names an array
/// that no input reads.
static LogicalResult checkLabels(ModuleOp module, const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  StringRef output = config.train.loss;
  if (!forward || config.data.labels == "next" ||
      !output.consume_front("output:") ||
      !hasOutput(forward, output)) // nn-add-loss reports it
    return success();
  std::string names;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    std::optional<nn::Role> role = nn::roleOf(forward, i);
    if (role == nn::Role::Labels)
      return success();
    if (nn::isOneOf(role, {nn::Role::Tokens, nn::Role::Input}))
      names +=
          ((names.empty() ? "'" : ", '") + nn::nameOf(forward, i) + "'").str();
  }
  return configError(module.getContext())
         << "data.labels = '" << config.data.labels
         << "' is read by nothing: train.loss = '" << config.train.loss
         << "' is computed in the model, whose inputs are " << names
         << "; name one of them, or leave data.labels out";
}

/// Warns if the labels are the next tokens but attention can read later tokens.
/// Such a model learns nothing, because it can read its labels.
static void warnAboutLaterTokens(ModuleOp module, const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  if (!forward || config.data.labels != "next" ||
      config.train.loss != "cross_entropy")
    return;
  int64_t length = 0;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto type = cast<RankedTensorType>(forward.getArgumentTypes()[i]);
    if (nn::roleOf(forward, i) == nn::Role::Tokens && type.getRank() > 1)
      length = type.getDimSize(1);
  }
  // With one label per sample, such as a class, the labels are not the next
  // tokens, and there is nothing to warn about.
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
    // A mask of keys is the same for all queries, so it cannot hide the tokens
    // after each query. An additive bias could hide them.
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

static void addLossPasses(OpPassManager &passes, const Config &config,
                          bool updatesApart) {
  AddLossPassOptions loss;
  loss.loss = config.train.loss;
  loss.logits = config.train.logits;
  loss.ignoreIndex = config.data.ignoreIndex;
  loss.microbatches = updatesApart ? 1 : config.train.microbatches;
  loss.sharedSlots = config.parallel.expert.capacity > 0 &&
                     config.parallel.expert.capacityScope == "microbatch";
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
}

LogicalResult addLoss(ModuleOp module, const Config &config,
                      bool updatesApart) {
  if (failed(checkLabels(module, config)))
    return failure();
  warnAboutLaterTokens(module, config);
  return runPasses(module, "train-loss", [&](OpPassManager &passes) {
    addLossPasses(passes, config, updatesApart);
  });
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
  passes.addNestedPass<func::FuncOp>(createDropZeroSumsPass());
  AddOptimizerPassOptions optimizer;
  optimizer.optimizer = config.train.optimizer;
  optimizer.beta1 = config.train.betas[0];
  optimizer.beta2 = config.train.betas[1];
  optimizer.epsilon = config.train.eps;
  optimizer.momentum = config.train.momentum;
  optimizer.weightDecay = config.train.weightDecay;
  optimizer.clipNorm = config.train.clipNorm;
  optimizer.noDecay = llvm::to_vector(config.train.noDecay);
  optimizer.tapGradients = tapGradients;
  optimizer.apart = updatesApart;
  for (size_t set = 0; set < config.train.began.size(); ++set)
    for (const std::string &name : config.train.began[set])
      optimizer.began.push_back(std::to_string(set + 1) + ":" + name);
  passes.addPass(createAddOptimizerPass(optimizer));
  UpdateRouterBiasesPassOptions biases;
  biases.rate = config.parallel.expert.biasUpdate;
  passes.addPass(createUpdateRouterBiasesPass(biases));
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
}

LogicalResult addGradients(ModuleOp module, const Config &config,
                           bool tapGradients) {
  return runPasses(module, "train-gradients", [&](OpPassManager &passes) {
    addCountPass(passes, config);
    addTrainPasses(passes, config, tapGradients);
  });
}

std::string clusterNameOf(const Config &config) {
  if (config.target.cluster.empty() && config.target.kind == "cuda")
    return "h100-" + config.train.precision;
  return config.target.cluster;
}

FailureOr<Cluster> clusterOf(const Config &config, MLIRContext *context) {
  std::string name = clusterNameOf(config);
  if (name.empty())
    return Cluster();
  ConfigResult<Cluster> cluster = loadCluster(name);
  if (!cluster)
    return configError(context) << cluster.error();
  return *cluster;
}

FailureOr<int64_t> ranksPerNode(const Config &config, MLIRContext *context) {
  if (config.mesh.ranksPerNode)
    return config.mesh.ranksPerNode;
  FailureOr<Cluster> cluster = clusterOf(config, context);
  if (failed(cluster))
    return failure();
  return cluster->ranksPerNode;
}

} // namespace cleave::compiler
