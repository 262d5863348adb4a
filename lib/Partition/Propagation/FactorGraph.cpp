//===- FactorGraph.cpp - values, rules and layouts of a module ------------===//

#include "cleave/Partition/Propagation/FactorGraph.h"

#include "cleave/Partition/Utils/Regions.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

ShardingRule cleave::partition::ruleOf(Operation *op) {
  if (auto constrain = dyn_cast<ConstrainOp>(op)) {
    ShardingRule rule;
    TensorFactors dims;
    for (int64_t size : typeOf(constrain).getShape())
      dims.push_back({rule.addFactor(size)});
    rule.operands = {dims};
    rule.results = {dims};
    return rule;
  }
  if (isLoopOrBranch(op)) {
    // The first operands of a loop are its bounds and its step. They are no
    // tensors and have no factors. The remaining operands are the initial
    // values of carried values. They have the factors of the loop's results.
    ShardingRule rule;
    rule.operands.resize(op->getNumOperands());
    size_t first = op->getNumOperands() - op->getNumResults();
    for (auto [index, type] : llvm::enumerate(op->getResultTypes())) {
      TensorFactors dims;
      for (int64_t size : cast<RankedTensorType>(type).getShape())
        dims.push_back({rule.addFactor(size)});
      if (isa<scf::ForOp>(op))
        rule.operands[first + index] = dims;
      rule.results.push_back(dims);
    }
    return rule;
  }
  return ShardingRule::of(op);
}

bool cleave::partition::isGenerator(Operation *op) {
  return op->getNumOperands() == 0 && op->getNumResults() == 1 && isPure(op) &&
         isa<ShardingRuleInterface>(op);
}

bool cleave::partition::isZeroConstant(Value value) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue())
                        : DenseElementsAttr();
  if (!dense || !dense.isSplat())
    return false;
  Attribute element = dense.getSplatValue<Attribute>();
  if (auto number = dyn_cast<FloatAttr>(element))
    return number.getValue().isZero();
  auto integer = dyn_cast<IntegerAttr>(element);
  return integer && integer.getValue().isZero();
}

Layout cleave::partition::producedLayout(const ShardingRule &rule,
                                         ArrayRef<Axes> factorAxes,
                                         AxisSet carry, ReduceKind carryKind,
                                         unsigned index) {
  Layout layout = layoutOf(rule.results[index], factorAxes);
  layout.partial = carry;
  layout.kind = carry ? carryKind : ReduceKind::Sum;
  for (auto [factor, info] : llvm::enumerate(rule.factors)) {
    bool inResult =
        llvm::any_of(rule.results[index],
                     [&, factor = int64_t(factor)](const DimFactors &dim) {
                       return llvm::is_contained(dim, factor);
                     });
    if (inResult || info.combiner == FactorCombiner::None ||
        factorAxes[factor].empty())
      continue;
    layout.partial |= setOf(factorAxes[factor]);
    layout.kind = reduceKindOf(info.combiner);
  }
  return layout;
}

SmallVector<Axes, 2> cleave::partition::axesOfFactors(const DimFactors &dim,
                                                      const ShardingRule &rule,
                                                      ArrayRef<Axis> axes,
                                                      const MeshAxes &mesh) {
  SmallVector<Axes, 2> result(dim.size());
  if (dim.size() == 1) {
    result[0].assign(axes.begin(), axes.end());
    return result;
  }
  size_t at = 0;
  int64_t left = dim.empty() ? 1 : rule.factors[dim[0]].size;
  for (Axis axis : axes) {
    // A minor factor can be split only if the factor major to it is split into
    // single elements.
    while (at < dim.size() && left == 1)
      left = ++at < dim.size() ? rule.factors[dim[at]].size : 1;
    if (at == dim.size() || left % mesh.size(axis) != 0)
      break;
    result[at].push_back(axis);
    left /= mesh.size(axis);
  }
  return result;
}

NodeId FactorGraph::addNode(Node node) {
  NodeId id = nodes.size();
  if (node.value)
    ids[node.value] = id;
  nodes.push_back(std::move(node));
  edgesOf.emplace_back();
  return id;
}

void FactorGraph::addEdge(Edge edge) {
  unsigned id = edges.size();
  auto note = [&](NodeId node) {
    if (node != kNoNode &&
        (edgesOf[node].empty() || edgesOf[node].back() != id))
      edgesOf[node].push_back(id);
  };
  for (NodeId node : edge.operands)
    note(node);
  for (NodeId node : edge.results)
    note(node);
  edges.push_back(std::move(edge));
}

void FactorGraph::addTie(NodeId a, NodeId b) {
  if (a == kNoNode || b == kNoNode ||
      nodes[a].type.getShape() != nodes[b].type.getShape())
    return;
  Edge edge;
  TensorFactors dims;
  for (int64_t size : nodes[a].type.getShape())
    dims.push_back({edge.rule.addFactor(size)});
  edge.rule.operands = {dims};
  edge.rule.results = {dims};
  edge.operands = {a};
  edge.results = {b};
  addEdge(std::move(edge));
}

FailureOr<NodeId> FactorGraph::addValue(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return kNoNode;
  if (!type.hasStaticShape())
    return emitError(value.getLoc()) << "tensor of dynamic shape " << type
                                     << " cannot be partitioned",
           failure();
  Node node;
  node.value = value;
  node.type = type;
  return addNode(node);
}

LogicalResult FactorGraph::addBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (partition::isScalarOp(&op))
      continue;
    bool entersRegions =
        op.getNumRegions() != 0 && !isa<ShardingRuleInterface>(op);
    if (entersRegions && failed(checkRegions(&op)))
      return failure();
    if (!entersRegions && failed(checkUnconstrained(&op)))
      return failure();
    Edge edge;
    edge.op = &op;
    edge.rule = ruleOf(&op);
    if (!isa<ShardingRuleInterface, ConstrainOp>(op) && !isLoopOrBranch(&op) &&
        op.getNumResults() != 0)
      op.emitRemark("has no sharding rule: its operands are gathered and it "
                    "runs whole on "
                    "every rank");
    for (Value operand : op.getOperands())
      edge.operands.push_back(nodeOf(operand));
    auto given = op.getAttrOfType<ArrayAttr>(kShardingAttrName);
    for (auto [index, result] : llvm::enumerate(op.getResults())) {
      FailureOr<NodeId> id = addValue(result);
      if (failed(id))
        return failure();
      edge.results.push_back(*id);
      if (*id == kNoNode)
        continue;
      nodes[*id].isGenerator = partition::isGenerator(&op);
      if (auto constrain = dyn_cast<ConstrainOp>(op))
        nodes[*id].requested = constrain.getSharding();
      else if (given)
        nodes[*id].requested = cast<ShardingAttr>(given[index]);
    }
    addEdge(std::move(edge));
    if (entersRegions && failed(addRegions(&op)))
      return failure();
  }
  return success();
}

LogicalResult FactorGraph::addRegions(Operation *op) {
  SmallVector<Carried> carried = carriedBy(op);
  for (const Carried &value : carried)
    if (value.argument) {
      FailureOr<NodeId> id = addValue(value.argument);
      if (failed(id))
        return failure();
      addTie(nodeOf(value.result), *id);
    }
  for (Region &region : op->getRegions())
    if (!region.empty() && failed(addBlock(region.front())))
      return failure();
  for (const Carried &value : carried)
    for (Value yielded : value.yielded)
      addTie(nodeOf(value.result), nodeOf(yielded));
  return success();
}

LogicalResult FactorGraph::addFunction(func::FuncOp func) {
  if (!llvm::hasSingleElement(func.getBody()))
    return func.emitError("a function with branches cannot be partitioned");

  for (auto [index, argument] : llvm::enumerate(func.getArguments())) {
    FailureOr<NodeId> id = addValue(argument);
    if (failed(id))
      return failure();
    if (*id == kNoNode)
      continue;
    nodes[*id].isPort = true;
    nodes[*id].port = {func, false, unsigned(index)};
    nodes[*id].requested = nodes[*id].port.sharding();
  }
  if (failed(addBlock(func.getBody().front())))
    return failure();
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (!type)
      continue;
    Node node;
    node.type = type;
    node.isPort = true;
    node.port = {func, true, unsigned(index)};
    node.requested = node.port.sharding();
    addTie(nodeOf(operand), addNode(node));
  }
  return success();
}

FailureOr<FactorGraph> FactorGraph::of(ModuleOp module) {
  FactorGraph graph;
  for (auto func : module.getOps<func::FuncOp>())
    if (!func.isExternal() && failed(graph.addFunction(func)))
      return failure();

  // All arguments and results of functions with the same name and role (such as
  // parameter) are the same tensor, and a gradient is sharded like its
  // parameter. So a sharding that is requested for one of them applies to all.
  llvm::MapVector<std::pair<std::optional<nn::Role>, StringRef>, NodeId> first;
  llvm::DenseMap<NodeId, ShardingAttr>
      requested; // by the first tensor of the name
  auto firstOf = [&](const Node &node) {
    return first.find({node.port.role(), node.port.name()})->second;
  };
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node &node = graph.nodes[id];
    if (!node.isPort || node.port.name().empty())
      continue;
    auto [at, isNew] = first.insert({{node.port.role(), node.port.name()}, id});
    if (!isNew)
      graph.addTie(at->second, id);
    if (node.requested)
      requested.try_emplace(at->second, node.requested);
  }
  for (Node &node : graph.nodes) {
    if (!node.isPort || node.port.name().empty() || node.requested)
      continue;
    ShardingAttr given = requested.lookup(firstOf(node));
    if (given && given.getRank() == node.type.getRank())
      node.requested =
          isForPeople(node.port)
              ? ShardingAttr::get(given.getContext(), given.getMesh(),
                                  given.getDims(), ReduceKind::Sum, {},
                                  given.getReplicated(), given.getPriority())
              : given;
  }
  for (auto &[key, id] : first)
    if (key.first == nn::Role::Gradient)
      if (auto parameter = first.find({nn::Role::Parameter, key.second});
          parameter != first.end())
        graph.addTie(parameter->second, id);
  return graph;
}
