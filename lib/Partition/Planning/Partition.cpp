//===- Partition.cpp - dist-partition -------------------------------------===//
//
// Emits the per-rank program, operation by operation, as planned.
// Operation-specific code is in the implementations of planLocal.
//
//===----------------------------------------------------------------------===//

#include "MoveRemarks.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Reshard/Reshard.h"
#include "cleave/Partition/Utils/Regions.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_DISTPARTITIONPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Partitions one function.
class Partitioner {
public:
  /// `buckets` plans the reshards of gradients and parameters, whose
  /// collectives dist-bucket merges, and `reshards` plans the others.
  Partitioner(func::FuncOp func, const MeshAxes &mesh, ReshardPlanner &reshards,
              ReshardPlanner &buckets, MoveRemarks &remarks)
      : func(func), mesh(mesh), reshards(reshards), buckets(buckets),
        remarks(remarks), builder(func.getContext()) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      takesGradients |= nn::roleOf(func, i) == nn::Role::Gradient;
  }

  LogicalResult run() {
    Block &global = func.getBody().front();
    auto *local = new Block();
    SmallVector<Type> argumentTypes, resultTypes;
    BoundaryAttrs boundary(func);
    for (auto [index, argument] : llvm::enumerate(global.getArguments())) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type)
        return func.emitError("argument ")
               << index << " is no tensor and cannot be partitioned";
      auto sharding =
          func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName);
      Layout layout = sharding ? mesh.layout(sharding) : Layout(type.getRank());
      Type tile = mesh.tile(layout, type);
      argumentTypes.push_back(tile);
      define(argument, local->addArgument(tile, argument.getLoc()), layout);
      boundary.setArgument(index, kShardingAttrName, mesh.sharding(layout));
      boundary.setArgument(index, kGlobalTypeAttrName, TypeAttr::get(type));
    }
    func.getBody().push_back(local);
    builder.setInsertionPointToEnd(local);
    for (Operation &op : global.without_terminator())
      if (failed(partition(&op)))
        return failure();
    Operation *terminator = global.getTerminator();
    SmallVector<Value> returned;
    for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      if (!type)
        return func.emitError("result ")
               << index << " is no tensor and cannot be partitioned";
      auto sharding =
          func.getResultAttrOfType<ShardingAttr>(index, kShardingAttrName);
      Layout layout = sharding ? mesh.layout(sharding) : Layout(type.getRank());
      FailureOr<Value> value =
          in(operand, layout, terminator, purposeOfResult(index, operand));
      if (failed(value))
        return failure();
      returned.push_back(*value);
      resultTypes.push_back((*value).getType());
      boundary.setResult(index, kShardingAttrName, mesh.sharding(layout));
      boundary.setResult(index, kGlobalTypeAttrName, TypeAttr::get(type));
    }
    boundary.apply();
    func::ReturnOp::create(builder, terminator->getLoc(), returned);
    global.dropAllReferences();
    global.erase();
    func.setFunctionType(builder.getFunctionType(argumentTypes, resultTypes));
    return success();
  }

private:
  struct Local {
    Layout layout;
    Value value;
  };

  void define(Value global, Value local, Layout layout) {
    locals[global].assign(1, {std::move(layout), local});
  }

  //===--------------------------------------------------------------------===//
  // Purposes of reshards
  //===--------------------------------------------------------------------===//

  static std::optional<Purpose> purposeOfRole(std::optional<nn::Role> role) {
    if (role == nn::Role::Gradient)
      return Purpose::Gradient;
    if (nn::isOneOf(role, {nn::Role::Parameter, nn::Role::State,
                           nn::Role::Buffer, nn::Role::Constant}))
      return Purpose::Parameter;
    if (nn::isOneOf(role,
                    {nn::Role::Loss, nn::Role::Weight, nn::Role::Accumulator}))
      return Purpose::Loss;
    return std::nullopt;
  }

  /// Returns the purpose of a reshard of `value`, for traffic reports. A
  /// function argument, also after moves of elements, has the purpose of its
  /// role. Other values are gradients, activations or, as scalars of the
  /// optimizer update, part of the gradient norm.
  Purpose purposeOf(Value value) const {
    Value at = value;
    while (Operation *op = at.getDefiningOp()) {
      if (op->getNumOperands() != 1 && !isa<nn::RematerializeOp>(op))
        break;
      auto rule = dyn_cast<ShardingRuleInterface>(op);
      if (!isa<ConstrainOp>(op) && !(rule && rule.getShardingRule().movement))
        break;
      at = op->getOperand(0);
    }
    if (auto argument = dyn_cast<BlockArgument>(at);
        argument && argument.getOwner()->getParentOp() == func)
      if (auto purpose = purposeOfRole(nn::roleOf(argument)))
        return *purpose;
    // If the value becomes a gradient that the function returns, perhaps after
    // additions, the purpose of its reshards is `gradient`.
    for (at = value; at.hasOneUse();) {
      OpOperand &use = *at.getUses().begin();
      Operation *user = use.getOwner();
      if (isa<func::ReturnOp>(user)) {
        auto purpose =
            purposeOfRole(nn::resultRoleOf(func, use.getOperandNumber()));
        if (purpose == Purpose::Gradient)
          return *purpose;
        break;
      }
      if (user->getNumResults() != 1 ||
          user->getResult(0).getType() != value.getType())
        break;
      if (!isa<ConstrainOp>(user) &&
          !ruleOf(user).isTerm(use.getOperandNumber()))
        break;
      at = user->getResult(0);
    }
    if (typeOf(value).getRank() == 0)
      return takesGradients ? Purpose::Norm : Purpose::Loss;
    return Purpose::Activation;
  }

  Purpose purposeOfResult(unsigned index, Value value) const {
    auto purpose = purposeOfRole(nn::resultRoleOf(func, index));
    return purpose ? *purpose : purposeOf(value);
  }

  //===--------------------------------------------------------------------===//
  // Values in layouts
  //===--------------------------------------------------------------------===//

  /// Returns whether a constraint asks for the value in `layout`, or all
  /// readers of the value are function results with this layout.
  bool isAsked(Value value, const Layout &layout) const {
    bool isResult = !value.use_empty();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      dist::ShardingAttr wanted;
      if (auto constrain = dyn_cast<ConstrainOp>(user))
        wanted = constrain.getSharding();
      else if (isa<func::ReturnOp>(user))
        wanted = func.getResultAttrOfType<ShardingAttr>(use.getOperandNumber(),
                                                        kShardingAttrName);
      bool wants = wanted && mesh.layout(wanted).dims == layout.dims;
      if (wants && isa<ConstrainOp>(user))
        return true;
      isResult &= wants;
    }
    return isResult;
  }

  /// Returns the rank's tile of the unsharded value `global` in `layout`. If it
  /// does not exist yet, reshards the value before `reader`.
  FailureOr<Value> in(Value global, const Layout &layout, Operation *reader,
                      std::optional<Purpose> purpose = std::nullopt) {
    Operation *op = global.getDefiningOp();
    SmallVector<Local> &known = locals[global];
    for (const Local &local : known)
      if (local.layout == layout)
        return local.value;
    auto type = typeOf(global);
    if (op && partition::isGenerator(op)) {
      FailureOr<Value> value = generate(op, layout);
      if (failed(value))
        return failure();
      locals[global].push_back({layout, *value});
      return *value;
    }
    assert(!known.empty() && "operands are partitioned before their users");

    // Reshards from the planned layout of the value, or from another layout in
    // which it is already available if that is cheaper.
    Purpose why = purpose ? *purpose : purposeOf(global);
    ReshardPlanner &planner =
        why == Purpose::Gradient || why == Purpose::Parameter ? buckets
                                                              : reshards;
    size_t best = 0;
    int64_t bestBytes = -1;
    ArrayRef<Move> moves;
    for (auto [index, local] : llvm::enumerate(known)) {
      ArrayRef<Move> plan = planner.plan(type.getShape(), elementBytes(type),
                                         local.layout, layout);
      int64_t bytes = sentBytes(mesh, type.getShape(), elementBytes(type),
                                local.layout, plan);
      if (bestBytes >= 0 && bytes >= bestBytes)
        continue;
      best = index;
      bestBytes = bytes;
      moves = plan;
    }
    Local from = known[best];
    if (why == Purpose::Activation &&
        !isa<ConstrainOp, func::ReturnOp>(reader) &&
        !(reader == op && isAsked(global, layout)))
      remarks.add(global, from.layout, layout, moves, reader, planner);
    Value value = emitReshard(builder, global.getLoc(), mesh, type, from.value,
                              from.layout, moves, why);
    locals[global].push_back({layout, value});
    return value;
  }

  /// Emits an operation without operands, such as a constant, in `layout`.
  FailureOr<Value> generate(Operation *op, const Layout &layout) {
    ShardingRule rule = ruleOf(op);
    SmallVector<Axes> factors(rule.factors.size());
    for (auto [made, axes] : llvm::zip_equal(rule.results[0], layout.dims))
      for (auto [factor, part] :
           llvm::zip_equal(made, axesOfFactors(made, rule, axes, mesh)))
        factors[factor] = part;
    LocalPlan plan(op, builder, mesh, rule, factors, {});
    if (failed(cast<ShardingRuleInterface>(op).planLocal(plan)))
      return failure();
    Value value = plan.localResults()[0];
    Layout have = cleave::layoutOf(rule.results[0], factors);
    if (have == layout)
      return value;
    auto type = typeOf(op->getResult(0));
    return emitReshard(
        builder, op->getLoc(), mesh, type, value, have,
        reshards.plan(type.getShape(), elementBytes(type), have, layout),
        Purpose::Activation);
  }

  //===--------------------------------------------------------------------===//
  // Operations
  //===--------------------------------------------------------------------===//

  LogicalResult partition(Operation *op) {
    if (partition::isScalarOp(op))
      return copyScalar(op);
    if (partition::isGenerator(op))
      return success();
    if (isLoopOrBranch(op))
      return partitionRegions(op);
    auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
    if (auto constrain = dyn_cast<ConstrainOp>(op)) {
      Layout layout = mesh.layout(given ? cast<ShardingAttr>(given[0])
                                        : constrain.getSharding());
      FailureOr<Value> value =
          in(constrain.getInput(), layout, op, constrain.getPurpose());
      if (failed(value))
        return failure();
      define(constrain.getResult(), *value, layout);
      return success();
    }
    if (op->getNumResults() == 0 && isOpTriviallyDead(op))
      return success();
    auto plan = op->getAttrOfType<PlanAttr>(kPlanAttrName);
    ShardingRule rule = ruleOf(op);
    if (!plan || !given || plan.getFactors().size() != rule.factors.size())
      return op->emitOpError(
          "has no plan; dist-plan-ops goes before dist-partition");
    SmallVector<Axes> factors;
    for (Attribute axes : plan.getFactors())
      factors.push_back(mesh.decompose(cast<AxisListAttr>(axes).getAxes()));
    AxisSet carry = setOf(mesh.decompose(plan.getCarry().getAxes()));

    // The operation is linear in the operands of `group`, such as the terms of
    // an addition. Partial sums among them are read without being reduced.
    ArrayRef<unsigned> group =
        carry ? carrying(op, rule, carry) : ArrayRef<unsigned>();
    SmallVector<Value> operands;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      if (!isa<RankedTensorType>(operand.getType()))
        return op->emitOpError("reads operand ")
               << index << " of type " << operand.getType()
               << ", expected tensors; it cannot be partitioned";
      Layout need = cleave::layoutOf(rule.operands[index], factors);
      if (llvm::is_contained(group, unsigned(index)) &&
          !isZeroConstant(operand)) {
        need.partial = carry;
        need.kind = kindOf(op, group);
      }
      FailureOr<Value> value = in(operand, need, op);
      if (failed(value))
        return failure();
      operands.push_back(*value);
    }
    LocalPlan local(op, builder, mesh, rule, factors, operands);
    if (auto interface = dyn_cast<ShardingRuleInterface>(op)) {
      if (failed(interface.planLocal(local)))
        return failure();
    } else {
      local.setResults(local.cloneLocal()->getResults());
    }
    for (const LocalPlan::Gather &gather : local.gathers())
      remarks.add(op, gather, local.axesOf(gather.factor));
    for (auto [index, result] : llvm::enumerate(op->getResults())) {
      Layout kept = mesh.layout(cast<ShardingAttr>(given[index]));
      // `have` is the layout in which the operation computes the result; `kept`
      // is the layout in which the plan wants it.
      Layout have =
          producedLayout(rule, factors, carry, kindOf(op, group), index);
      define(result, local.localResults()[index], have);
      if (have != kept) {
        FailureOr<Value> moved = in(result, kept, op);
        if (failed(moved))
          return failure();
        define(result, *moved, kept);
      }
    }
    return success();
  }

  /// Scalars are the same on all ranks.
  LogicalResult copyScalar(Operation *op) {
    IRMapping mapping(scalars);
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType())) {
        FailureOr<Value> value = in(operand, Layout(type.getRank()), op);
        if (failed(value))
          return failure();
        mapping.map(operand, *value);
      }
    Operation *local = builder.clone(*op, mapping);
    for (auto [from, to] :
         llvm::zip_equal(op->getResults(), local->getResults()))
      scalars.map(from, to);
    return success();
  }

  /// A value that a loop or branch carries or yields has everywhere the layout
  /// of the corresponding result.
  LogicalResult partitionRegions(Operation *op) {
    auto given = op->getAttrOfType<ArrayAttr>(kShardingAttrName);
    SmallVector<Carried> carried = carriedBy(op);
    if (!given || given.size() != carried.size())
      return op->emitOpError(
          "has no plan; dist-plan-ops goes before dist-partition");
    SmallVector<Layout> layouts;
    SmallVector<Value> inits;
    SmallVector<Type> types;
    for (auto [value, attr] : llvm::zip_equal(carried, given)) {
      layouts.push_back(mesh.layout(cast<ShardingAttr>(attr)));
      types.push_back(mesh.tile(layouts.back(), typeOf(value.result)));
      if (!value.init)
        continue;
      FailureOr<Value> init = in(value.init, layouts.back(), op);
      if (failed(init))
        return failure();
      inits.push_back(*init);
    }
    Operation *local = nullptr;
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      auto copy = scf::ForOp::create(builder, op->getLoc(),
                                     scalars.lookup(loop.getLowerBound()),
                                     scalars.lookup(loop.getUpperBound()),
                                     scalars.lookup(loop.getStep()), inits);
      scalars.map(loop.getInductionVar(), copy.getInductionVar());
      for (auto [index, value] : llvm::enumerate(carried))
        define(value.argument, copy.getRegionIterArgs()[index], layouts[index]);
      local = copy;
    } else {
      auto branch = cast<scf::IfOp>(op);
      local = scf::IfOp::create(
          builder, op->getLoc(), types, scalars.lookup(branch.getCondition()),
          /*withElseRegion=*/!branch.getElseRegion().empty());
    }
    local->setAttr(kShardingAttrName, given);
    for (auto [from, to] :
         llvm::zip_equal(op->getRegions(), local->getRegions()))
      if (!from.empty() && failed(partitionRegion(from, to, layouts)))
        return failure();
    for (auto [index, value] : llvm::enumerate(carried))
      define(value.result, local->getResult(index), layouts[index]);
    return success();
  }

  LogicalResult partitionRegion(Region &from, Region &to,
                                ArrayRef<Layout> layouts) {
    OpBuilder::InsertionGuard guard(builder);
    Block &block = to.front();
    // The block of a region without results already has its terminator.
    if (block.mightHaveTerminator())
      builder.setInsertionPoint(block.getTerminator());
    else
      builder.setInsertionPointToEnd(&block);
    for (Operation &op : from.front().without_terminator())
      if (failed(partition(&op)))
        return failure();
    Operation *terminator = from.front().getTerminator();
    SmallVector<Value> yielded;
    for (auto [operand, layout] :
         llvm::zip_equal(terminator->getOperands(), layouts)) {
      FailureOr<Value> value = in(operand, layout, terminator);
      if (failed(value))
        return failure();
      yielded.push_back(*value);
    }
    if (!block.mightHaveTerminator())
      scf::YieldOp::create(builder, terminator->getLoc(), yielded);
    // Code outside of the region cannot read reshards that were made in it.
    for (auto &[value, known] : locals)
      llvm::erase_if(known, [&](Local &local) {
        return to.isAncestor(local.value.getParentRegion());
      });
    return success();
  }

  /// Returns the first group of operands (ShardingRule::linear) of which one is
  /// partial over `carry`, so that partial results pass through the operation.
  ArrayRef<unsigned> carrying(Operation *op, const ShardingRule &rule,
                              AxisSet carry) {
    for (ArrayRef<unsigned> group : rule.linear)
      for (unsigned index : group) {
        auto it = locals.find(op->getOperand(index));
        if (it != locals.end() && !it->second.empty() &&
            it->second[0].layout.partial & carry)
          return group;
      }
    return {};
  }

  ReduceKind kindOf(Operation *op, ArrayRef<unsigned> group) {
    for (unsigned index : group) {
      auto it = locals.find(op->getOperand(index));
      if (it != locals.end() && !it->second.empty() &&
          it->second[0].layout.partial)
        return it->second[0].layout.kind;
    }
    return ReduceKind::Sum;
  }

  mutable func::FuncOp func; // Its accessors are not const.
  const MeshAxes &mesh;
  ReshardPlanner &reshards, &buckets;
  MoveRemarks &remarks;
  OpBuilder builder;
  bool takesGradients = false;
  /// For each unsharded value, the rank's tile in each layout in which it
  /// exists; the planned layout comes first.
  llvm::DenseMap<Value, SmallVector<Local>> locals;
  IRMapping scalars;
};

struct DistPartitionPass
    : cleave::impl::DistPartitionPassBase<DistPartitionPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    const MeshAxes &mesh = machine->mesh;
    // Gradients and parameters get plans without search, so that equal tensors
    // get equal collectives, which dist-bucket can merge.
    ReshardOptions searched, plain;
    searched.largerTiles = plain.largerTiles = largerTiles;
    plain.plain = true;
    ReshardPlanner reshards(mesh, machine->links, searched),
        buckets(mesh, machine->links, plain);
    MoveRemarks remarks(mesh);
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal() &&
          failed(Partitioner(func, mesh, reshards, buckets, remarks).run()))
        return signalPassFailure();
    remarks.emit();
  }
};

} // namespace
