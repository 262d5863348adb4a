// strategy-data: shards the batch and the positions, and derives the shardings
// of gradients, optimizer state and parameters.

#include "StrategyUtils.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYDATAPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

struct StrategyDataPass : cleave::impl::StrategyDataPassBase<StrategyDataPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(readOptions(module)))
      return signalPassFailure();
    if (dist::axesSize(meshAttr, allAxes()) == 1)
      return;
    collectParameters();
    findPositions();
    remarkOnPadding();
    setBoundaryShardings(module,
                         [&](RankedTensorType type, DictionaryAttr attrs) {
                           return boundary(type, attrs);
                         });
    for (auto func : module.getOps<func::FuncOp>()) {
      if (func.isDeclaration())
        continue;
      if (func.getName() == nn::kUpdateFunc)
        constrainUpdate(func);
      else if (zero == 3)
        gatherParameters(func);
      if (scattersGradients || sumsGradients)
        reduceGradients(func);
    }
  }

  LogicalResult readOptions(ModuleOp module) {
    SmallVector<std::string> ofBatch(batchAxes.begin(), batchAxes.end());
    if (ofBatch.empty() && sequenceAxes.empty())
      ofBatch = {"data"};
    for (const std::string &name : ofBatch)
      if (failed(addAxis(module, name, samples)))
        return failure();
    for (const std::string &name : sequenceAxes)
      if (failed(addAxis(module, name, positions)))
        return failure();
    SmallVector<dist::AxisRefAttr> replicas;
    for (const std::string &name : replicate) {
      replicas.push_back(dist::AxisRefAttr::get(&getContext(), name));
      if (!llvm::is_contained(allAxes(), replicas.back()))
        return mesh.emitOpError("axis '")
               << name << "' is to replicate, but splits neither samples nor "
               << "positions; name it in batch-axes or sequence-axes, too";
    }
    for (dist::AxisRefAttr axis : allAxes())
      if (!llvm::is_contained(replicas, axis))
        sharded.push_back(axis);
    if (sharded.empty())
      return mesh.emitOpError("axis '")
             << replicate.front() << "' cannot both shard and replicate";
    if (zero < 0 || zero > 3)
      return module.emitError("zero is ")
             << int64_t(zero) << "; expected 0, 1, 2 or 3";
    if (zero2Reduce != "per_step" && zero2Reduce != "per_microbatch")
      return module.emitError("zero2-reduce is '")
             << zero2Reduce.getValue()
             << "'; expected per_step or per_microbatch";
    // Gradients accumulated over microbatches are arguments too.
    bool accumulates = false, gives = false;
    if (auto grad = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc)) {
      for (unsigned arg = 0; arg < grad.getNumArguments(); ++arg)
        accumulates |= roleOf(grad.getArgAttrDict(arg)) == Role::Gradient;
      for (unsigned result = 0; result < grad.getNumResults(); ++result)
        gives |= roleOf(grad.getResultAttrDict(result)) == Role::Gradient;
    }
    scattersGradients =
        zero == 3 ||
        (zero == 2 && (!accumulates || zero2Reduce == "per_microbatch"));
    // Gradients are only summed inside @loss_grad if the module is no pipeline
    // stage. In a pipeline, the action REDUCE_GRAD reduces them.
    bool ofStage =
        llvm::any_of(module.getOps<func::FuncOp>(), [](func::FuncOp func) {
          return func->hasAttr(kStageAttr);
        });
    sumsGradients = zero == 0 && gives && !accumulates && !ofStage;
    return success();
  }

  LogicalResult addAxis(ModuleOp module, StringRef name,
                        SmallVectorImpl<dist::AxisRefAttr> &list) {
    FailureOr<dist::MeshOp> found = meshWithAxis(module, name);
    if (failed(found))
      return failure();
    mesh = *found;
    meshAttr = mesh.getMesh();
    auto axis = dist::AxisRefAttr::get(&getContext(), name);
    if (llvm::is_contained(allAxes(), axis))
      return mesh.emitOpError("axis '")
             << name << "' cannot split the boundary twice";
    list.push_back(axis);
    return success();
  }

  /// Finds the dimension of positions of each argument and result.
  void findPositions() {
    if (positions.empty())
      return;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (func.isDeclaration())
        continue;
      nn::PositionFlow flow(func);
      auto note = [&](DictionaryAttr attrs, Value value) {
        if (std::optional<int64_t> dim = flow.dimOf(value))
          positionDims.insert({{roleOf(attrs), nameOf(attrs).str()}, *dim});
      };
      for (BlockArgument argument : func.getArguments()) {
        DictionaryAttr attrs = func.getArgAttrDict(argument.getArgNumber());
        if (!isOnlyReordered(argument))
          note(attrs, argument);
        else if (std::optional<int64_t> dim = flow.dimOf(argument))
          reordered.insert({nameOf(attrs), *dim});
      }
      Operation *end = func.getBody().front().getTerminator();
      for (auto [index, value] : llvm::enumerate(end->getOperands()))
        note(func.getResultAttrDict(index), value);
    }
  }

  /// Returns whether an argument holds integers, such as tokens or labels, and
  /// all its readers only reorder its positions. Such an argument is
  /// replicated, because reordering a sharded one would need communication.
  static bool isOnlyReordered(BlockArgument argument) {
    return getElementTypeOrSelf(argument.getType()).isInteger() &&
           !argument.use_empty() &&
           llvm::all_of(argument.getUses(), [](OpOperand &use) {
             return use.getOperandNumber() == 0 &&
                    nn::reorderedDim(use.getOwner());
           });
  }

  std::optional<int64_t> positionDimOf(DictionaryAttr attrs) const {
    auto it = positionDims.find({roleOf(attrs), nameOf(attrs).str()});
    if (it == positionDims.end())
      return std::nullopt;
    return it->second;
  }

  /// Emits one remark if samples do not divide evenly among ranks, and one if
  /// positions do not.
  void remarkOnPadding() {
    remarkOnUneven(samples, "a batch", "samples of weight 0",
                   [](DictionaryAttr attrs, int64_t rank) {
                     return nn::batchDimOf(attrs, rank);
                   });
    remarkOnUneven(positions, "a sequence", "positions of weight 0",
                   [&](DictionaryAttr attrs, int64_t) {
                     auto it = reordered.find(nameOf(attrs));
                     return it != reordered.end() ? std::optional(it->second)
                                                  : positionDimOf(attrs);
                   });
  }

  void remarkOnUneven(
      ArrayRef<dist::AxisRefAttr> axes, StringRef what, StringRef padding,
      llvm::function_ref<std::optional<int64_t>(DictionaryAttr, int64_t)>
          dimOf) {
    int64_t all = dist::axesSize(meshAttr, axes);
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
        DictionaryAttr attrs = func.getArgAttrDict(arg);
        auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
        if (!holdsSamples(roleOf(attrs)) || !type)
          continue;
        std::optional<int64_t> dim = dimOf(attrs, type.getRank());
        if (!dim || type.getDimSize(*dim) % all == 0)
          continue;
        // If a batch is uneven, the driver gives the warning, because it knows
        // how many ranks are idle.
        int64_t size = type.getDimSize(*dim);
        int64_t padded = dist::tileSize(size, all) * all;
        bool isMuch = what == "a sequence" && 10 * (padded - size) > padded;
        InFlightDiagnostic remark =
            isMuch ? emitWarning(func.getLoc()) : emitRemark(func.getLoc());
        remark << what << " of " << type.getDimSize(*dim)
               << " does not divide by the " << all << " ranks of "
               << (axes.size() == 1 ? "axis " : "axes ");
        llvm::interleave(
            axes,
            [&](dist::AxisRefAttr axis) {
              remark << "'" << axis.getName().getValue() << "'";
            },
            [&] { remark << " and "; });
        remark << ": it is padded to "
               << dist::tileSize(type.getDimSize(*dim), all) * all << " with "
               << padding;
        return;
      }
  }

  /// Whether the tensor is a parameter, trained or frozen, so that ZeRO 3
  /// shards it.
  static bool isParameter(DictionaryAttr attrs) {
    return roleOf(attrs) == Role::Parameter ||
           (attrs && attrs.contains(nn::kFrozenAttr));
  }

  /// Collects the shardings of parameters that other strategies set.
  void collectParameters() {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
        DictionaryAttr attrs = func.getArgAttrDict(arg);
        auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
        if (isParameter(attrs) && type)
          parameters.insert(
              {nameOf(attrs), axesOf(shardingOf(attrs), type.getRank())});
      }
  }

  Axes parameterAxes(StringRef name, int64_t rank) const {
    auto it = parameters.find(name);
    return it != parameters.end() ? it->second : Axes(rank);
  }

  /// Whether `axes`, which split a parameter by the user's or another
  /// strategy's choice, include the axis `by` or a part of it.
  bool isSplitByHand(const Axes &axes, dist::AxisRefAttr by) const {
    return llvm::any_of(axes, [&](auto &list) {
      return llvm::any_of(list, [&](dist::AxisRefAttr other) {
        return dist::overlaps(meshAttr, by, other);
      });
    });
  }

  /// Returns those axes of `all` that do not split the parameter. The
  /// parameter's gradient is a partial sum over these axes.
  SmallVector<dist::AxisRefAttr> leftOf(ArrayRef<dist::AxisRefAttr> all,
                                        const Axes &axes) const {
    SmallVector<dist::AxisRefAttr> left;
    for (dist::AxisRefAttr candidate : all)
      if (!isSplitByHand(axes, candidate))
        left.push_back(candidate);
    return left;
  }

  /// Returns the axes that shard the optimizer state: those of the parameter
  /// and, with `zero`, the axes that ZeRO shards over.
  Axes stateAxes(StringRef parameter, RankedTensorType type) const {
    Axes axes = parameterAxes(parameter, type.getRank());
    SmallVector<dist::AxisRefAttr> more = leftOf(sharded, axes);
    int64_t ways = dist::axesSize(meshAttr, more);
    if (zero == 0 || ways == 1)
      return axes;
    std::optional<int64_t> best;
    double bestPadding = 0;
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      int64_t size = type.getDimSize(dim);
      int64_t before = dist::axesSize(meshAttr, axes[dim]);
      // ZeRO may only split a dimension that is split already if it divides
      // evenly: each new tile must be contained in an old one, or elements
      // would move across the other axes.
      if (size < 2 || (before > 1 && size % (before * ways) != 0))
        continue;
      double padding =
          double(dist::tileSize(size, before * ways) * before * ways) / size;
      if (!best || padding < bestPadding)
        best = dim, bestPadding = padding;
    }
    if (best)
      llvm::append_range(axes[*best], more);
    return axes;
  }

  /// Opens the dimensions of an output for further axes: an output keeps the
  /// layout in which it is computed, and its reader gathers it.
  dist::ShardingAttr openFurther(dist::ShardingAttr sharding,
                                 int64_t batchDim) const {
    SmallVector<dist::DimShardingAttr> dims;
    for (auto [index, dim] : llvm::enumerate(sharding.getDims()))
      dims.push_back(dist::DimShardingAttr::get(
          sharding.getContext(), dim.getAxes(), int64_t(index) != batchDim));
    return dist::ShardingAttr::get(sharding.getContext(), sharding.getMesh(),
                                   dims);
  }

  /// Returns all axes that split samples or positions. Gradients, the loss and
  /// its weight are sums over these axes.
  SmallVector<dist::AxisRefAttr> allAxes() const {
    SmallVector<dist::AxisRefAttr> all(samples);
    llvm::append_range(all, positions);
    return all;
  }

  /// Adds the axes that split samples and positions, major to the axes of other
  /// strategies. Returns false if the tensor has neither dimension.
  bool split(Axes &axes, DictionaryAttr attrs) const {
    std::optional<int64_t> batch = nn::batchDimOf(attrs, axes.size());
    std::optional<int64_t> sequence = positionDimOf(attrs);
    auto add = [&](int64_t dim, ArrayRef<dist::AxisRefAttr> more) {
      axes[dim].insert(axes[dim].begin(), more.begin(), more.end());
    };
    if (batch)
      add(*batch, samples);
    if (sequence && sequence != batch)
      add(*sequence, positions);
    return batch || sequence;
  }

  dist::ShardingAttr boundary(RankedTensorType type,
                              DictionaryAttr attrs) const {
    std::optional<Role> role = roleOf(attrs);
    StringRef name = nameOf(attrs);
    int64_t rank = type.getRank();
    if (holdsSamples(role)) {
      // An input without a batch dimension is replicated. An output without one
      // keeps the layout in which it is computed.
      std::optional<int64_t> dim = nn::batchDimOf(attrs, rank);
      if (rank == 0 || (!dim && role == Role::Output))
        return {};
      Axes axes = axesOf(shardingOf(attrs), rank);
      split(axes, attrs);
      dist::ShardingAttr sharding = closedSharding(mesh, axes);
      return role == Role::Output ? openFurther(sharding, *dim) : sharding;
    }
    if (crossesStages(role)) {
      // A value that another pipeline stage has given a sharding keeps it;
      // otherwise its samples and positions are split.
      Axes axes(rank);
      if (shardingOf(attrs) || !split(axes, attrs))
        return {};
      return openFurther(closedSharding(mesh, axes), /*batchDim=*/-1);
    }
    if (isParameter(attrs) && zero == 3)
      return closedSharding(mesh, stateAxes(name, type));
    if (role == Role::Parameter)
      return closedSharding(mesh, parameterAxes(name, rank));
    if (role == Role::State)
      return closedSharding(mesh, stateAxes(name.rsplit('.').first, type));
    if (role == Role::Tap)
      return closedSharding(mesh, stateAxes(name, type));
    // Gradients, the loss and its weight are partial sums over the axes that
    // split samples and positions (unless these axes split the parameter), and
    // over axes that another strategy noted as partial.
    SmallVector<dist::AxisRefAttr> others;
    if (dist::ShardingAttr given = shardingOf(attrs))
      llvm::append_range(others, given.getPartial());
    if (role == Role::Gradient && scattersGradients && isSplit(name, type)) {
      SmallVector<dist::AxisRefAttr> partial = replicatedBy(name, rank);
      llvm::append_range(partial, others);
      return closedSharding(mesh, stateAxes(name, type), partial);
    }
    if (role == Role::Gradient || role == Role::Loss || role == Role::Weight ||
        role == Role::Accumulator) {
      Axes axes =
          role == Role::Gradient ? parameterAxes(name, rank) : Axes(rank);
      SmallVector<dist::AxisRefAttr> partial;
      if (role != Role::Gradient || !sumsGradients)
        partial = leftOf(allAxes(), axes);
      llvm::append_range(partial, others);
      return closedSharding(mesh, axes, partial);
    }
    return {};
  }

  /// Of the axes that split samples or positions and not the parameter, returns
  /// those over which ZeRO replicates instead of sharding. Over these axes, the
  /// tiles of the parameter's gradient are still partial sums after ZeRO has
  /// scattered the gradient.
  SmallVector<dist::AxisRefAttr> replicatedBy(StringRef parameter,
                                              int64_t rank) const {
    SmallVector<dist::AxisRefAttr> left =
        leftOf(allAxes(), parameterAxes(parameter, rank));
    llvm::erase_if(left, [&](dist::AxisRefAttr axis) {
      return llvm::is_contained(sharded, axis);
    });
    return left;
  }

  /// Returns whether ZeRO shards the gradient and state of this parameter.
  bool isSplit(StringRef parameter, RankedTensorType type) const {
    return stateAxes(parameter, type) !=
           parameterAxes(parameter, type.getRank());
  }

  /// In @update, constrains each gradient to the reduced tile that ZeRO assigns
  /// to the rank, and the parameter to the same tile.
  void constrainUpdate(func::FuncOp update) {
    OpBuilder b = OpBuilder::atBlockBegin(&update.getBody().front());
    for (unsigned arg = 0; arg < update.getNumArguments(); ++arg) {
      DictionaryAttr attrs = update.getArgAttrDict(arg);
      std::optional<Role> role = roleOf(attrs);
      StringRef name = nameOf(attrs);
      auto type = cast<RankedTensorType>(update.getArgumentTypes()[arg]);
      Axes axes(type.getRank());
      if (role == Role::Gradient || (role == Role::Parameter && zero != 0))
        axes = stateAxes(name, type);
      else if (role != Role::Loss && role != Role::Weight &&
               role != Role::Accumulator)
        continue;
      BlockArgument argument = update.getArgument(arg);
      auto constrained = dist::ConstrainOp::create(
          b, argument.getLoc(), argument, closedSharding(mesh, axes));
      argument.replaceAllUsesExcept(constrained, constrained);
    }
  }

  /// Inserts one constraint per parameter. The result of the constraint is not
  /// sharded over the ZeRO axes, and all readers of the parameter read this
  /// result. The partitioner later decides how many all-gathers there are, and
  /// where.
  void gatherParameters(func::FuncOp func) {
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      DictionaryAttr attrs = func.getArgAttrDict(arg);
      BlockArgument argument = func.getArgument(arg);
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type || !isParameter(attrs) || argument.use_empty() ||
          !isSplit(nameOf(attrs), type))
        continue;
      OpBuilder b(*argument.user_begin());
      for (Operation *user : argument.getUsers())
        if (user->isBeforeInBlock(&*b.getInsertionPoint()))
          b.setInsertionPoint(user);
      auto whole = dist::ConstrainOp::create(
          b, NameLoc::get(b.getStringAttr(nameOf(attrs))), argument,
          closedSharding(mesh, parameterAxes(nameOf(attrs), type.getRank())));
      argument.replaceAllUsesExcept(whole, whole);
    }
  }

  /// Reduces the gradient of a microbatch as soon as it is complete. With ZeRO,
  /// each rank keeps its tile, and tiles are accumulated over microbatches.
  void reduceGradients(func::FuncOp func) {
    Operation *terminator = func.getBody().front().getTerminator();
    llvm::StringMap<BlockArgument> accumulators;
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
      if (roleOf(func.getArgAttrDict(arg)) == Role::Gradient)
        accumulators[nameOf(func.getArgAttrDict(arg))] = func.getArgument(arg);
    for (OpOperand &result : terminator->getOpOperands()) {
      DictionaryAttr attrs = func.getResultAttrDict(result.getOperandNumber());
      StringRef name = nameOf(attrs);
      auto type = dyn_cast<RankedTensorType>(result.get().getType());
      if (roleOf(attrs) != Role::Gradient || !type ||
          (scattersGradients && !isSplit(name, type)))
        continue;
      OpOperand *sum = &result;
      if (auto add = result.get().getDefiningOp<arith::AddFOp>())
        if (BlockArgument accumulator = accumulators.lookup(name))
          for (OpOperand &operand : add->getOpOperands())
            if (operand.get() == accumulator)
              sum = &add->getOpOperand(1 - operand.getOperandNumber());
      Operation *def = sum->get().getDefiningOp();
      if (!def || def->hasTrait<OpTrait::ConstantLike>())
        continue;
      OpBuilder b(terminator);
      b.setInsertionPointAfter(def);
      Location loc = NameLoc::get(b.getStringAttr(name));
      // The gradient is first constrained to be a partial sum. Otherwise,
      // propagation could gather activations to avoid the reduction.
      dist::ShardingAttr tiles = shardingOf(attrs);
      SmallVector<dist::AxisRefAttr> partial(tiles.getPartial());
      llvm::append_range(partial, leftOf(sumsGradients ? allAxes() : sharded,
                                         parameterAxes(name, type.getRank())));
      Value terms = dist::ConstrainOp::create(
          b, loc, sum->get(),
          closedSharding(mesh, parameterAxes(name, type.getRank()), partial));
      sum->set(dist::ConstrainOp::create(
          b, loc, type, terms, tiles,
          dist::PurposeAttr::get(&getContext(), dist::Purpose::Gradient)));
    }
  }

  dist::MeshOp mesh;
  dist::MeshAttr meshAttr;
  /// The axes that split samples and positions, slowest first; and those among
  /// them that ZeRO shards over.
  SmallVector<dist::AxisRefAttr> samples, positions, sharded;
  std::map<std::pair<std::optional<Role>, std::string>, int64_t>
      positionDims;                   // by role and name
  llvm::StringMap<int64_t> reordered; // by name: inputs that are replicated
  bool scattersGradients = false, sumsGradients = false;
  llvm::StringMap<Axes> parameters;
};

} // namespace
