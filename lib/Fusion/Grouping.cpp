// Groups operations into kernels.

#include "FormKernels.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringExtras.h"

#include <queue>

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

/// A value is recomputed by each kernel that reads it if at most this many
/// operations compute it, elementwise, from index grids (nn.iota), constants
/// and the index of the rank in the mesh.
static constexpr int kMostGenerated = 24;
/// An operation such as a convolution is lowered to a chain of operations, one
/// for each element of its window. A chain of at least this many operations
/// starts as one unit (one kernel).
static constexpr size_t kLongChain = 8;
/// The cost of operations that have no kernel plan. It is so high that any
/// fused kernel that has a plan is cheaper.
static constexpr double kCannotBePlanned = 1e30;

static bool isRankSource(Operation *op) {
  return isa<dist::AxisIndexOp, dist::TileOffsetOp>(op);
}

Grouping::Grouping(func::FuncOp func) : func(func) {}

LogicalResult Grouping::run() {
  // nn.save and nn.rematerialize mark residuals, and are no longer needed.
  func.walk([](Operation *op) {
    if (isa<nn::SaveOp, nn::RematerializeOp>(op)) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
    }
  });
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  SmallVector<nn::ReduceOp> reductions;
  func.walk([&](nn::ReduceOp op) { reductions.push_back(op); });
  for (nn::ReduceOp op : reductions)
    splitReduction(op);
  decompose();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  int position = 0;
  for (Operation &op : func.front())
    positions[&op] = position++;
  classify();
  joinChains();
  if (failed(createUnits()))
    return failure();
  connect();
  mergeAlongEdges();
  mergeSiblings();
  return success();
}

/// Returns the word for an operation in kernel names, such as "add" for
/// arith.addf.
static std::string mnemonicOf(Operation *op) {
  StringRef name = op->getName().stripDialect();
  if (isa<arith::ArithDialect>(op->getDialect()))
    if (name.size() > 2 && (name.ends_with("f") || name.ends_with("i")) &&
        !name.contains('_'))
      name = name.drop_back();
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return nn::stringifyCombiner(reduce.getCombiner()).str();
  return name.str();
}

void Grouping::decompose() {
  int number = 0;
  for (Operation &op : func.front())
    origins[&op] = {number++, mnemonicOf(&op)};
  decomposeAll(func, [&](Operation *op, ArrayRef<Operation *> created) {
    Origin origin = origins.lookup(op);
    origin.parts = created.size();
    for (Operation *part : created)
      origins[part] = origin;
    origins.erase(op);
  });
}

/// Returns whether an operation, and a few elementwise operations before it,
/// compute a value only from index grids (nn.iota), constants and the rank's
/// index.
bool Grouping::isGenerated(Operation *op) {
  auto lowering = dyn_cast<LoweringInterface>(op);
  if (!lowering || lowering.getKernelClass() != KernelClass::Elementwise ||
      isa<math::MathDialect>(op->getDialect()))
    return false;
  SetVector<Operation *> chain;
  chain.insert(op);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (chain.size() > kMostGenerated)
      return false;
    for (Value operand : chain[i]->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!source || placeOf(source) != Place::Inline)
        return false;
      chain.insert(source);
    }
  }
  return true;
}

/// Returns whether an operation is a view, for which the host only computes an
/// address.
bool Grouping::isFreePlacement(Operation *op) const {
  if (isa<nn::ReshapeOp>(op))
    return true;
  auto contiguous = [](ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
    size_t dim = 0;
    while (dim < to.size() && to[dim] == 1)
      ++dim;
    return dim >= to.size() ||
           from.drop_front(dim + 1) == to.drop_front(dim + 1);
  };
  if (auto slice = dyn_cast<nn::SliceOp>(op))
    return llvm::all_of(slice.getStrides(),
                        [](int64_t stride) { return stride == 1; }) &&
           contiguous(typeOf(slice.getInput()).getShape(), slice.getSizes());
  if (auto slice = dyn_cast<dist::SliceOp>(op)) {
    ArrayRef<int64_t> whole = typeOf(slice.getInput()).getShape();
    int64_t dim = slice.getDim();
    return whole[dim] % typeOf(slice.getResult()).getDimSize(dim) == 0 &&
           contiguous(whole, typeOf(slice.getResult()).getShape());
  }
  return false;
}

void Grouping::classify() {
  for (Operation &op : func.front()) {
    Place place = Place::Host;
    if (isRankSource(&op) || isa<dist::SliceOp>(op)) {
      place = Place::Inline;
    } else if (auto lowering = dyn_cast<LoweringInterface>(op)) {
      switch (lowering.getKernelClass()) {
      case KernelClass::View:
        place = Place::Inline;
        break;
      case KernelClass::Elementwise:
      case KernelClass::Row:
      case KernelClass::Reduction:
      case KernelClass::Indexing:
        place = Place::Kernel;
        break;
      case KernelClass::Library:
      case KernelClass::Collective:
      case KernelClass::Identity:
        break;
      }
    }
    places[&op] = place;
    if (place == Place::Kernel && isGenerated(&op))
      places[&op] = Place::Inline;
  }
  // Operands of host operations must be in memory.
  for (Operation &op : func.front())
    if (placeOf(&op) == Place::Host)
      for (Value operand : op.getOperands())
        materialize(operand);
}

/// If the host reads `value`, but kernels recompute it inline, moves its
/// operation to a kernel or to the host, so that the value is in memory.
void Grouping::materialize(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || placeOf(op) != Place::Inline)
    return;
  auto constant = dyn_cast<arith::ConstantOp>(op);
  bool splat = constant && isa<SplatElementsAttr>(constant.getValue());
  if (splat || isFreePlacement(op)) {
    places[op] = Place::Host;
    for (Value operand : op->getOperands())
      materialize(operand);
    return;
  }
  places[op] = Place::Kernel;
}

/// Finds the values in memory from which `value` is computed. Follows inline
/// operations to their operands. Also follows views and constants on the host,
/// because kernels read through them.
void Grouping::sources(Value value, SetVector<Value> &found) const {
  Operation *op = value.getDefiningOp();
  bool through = op && (placeOf(op) == Place::Inline ||
                        (placeOf(op) == Place::Host &&
                         (isFreePlacement(op) || isa<arith::ConstantOp>(op))));
  if (!through) {
    found.insert(value);
    return;
  }
  for (Value operand : op->getOperands())
    sources(operand, found);
}

/// A convolution or pooling is lowered to a chain of operations (links), one
/// for each element of its window. If the links were fused one by one, each of
/// these fusions would need a kernel plan. So the links of a chain start as one
/// unit, like the operations into which one operation was decomposed.
void Grouping::joinChains() {
  llvm::DenseMap<int, int> partsOfOrigin;
  for (Operation &op : func.front())
    ++partsOfOrigin[origins.lookup(&op).number];
  auto isLink = [&](Operation *op) {
    if (!op || placeOf(op) != Place::Kernel || op->getNumResults() != 1 ||
        partsOfOrigin.lookup(origins.lookup(op).number) != 1)
      return false;
    auto lowering = dyn_cast<LoweringInterface>(op);
    return lowering && lowering.getKernelClass() == KernelClass::Elementwise;
  };
  llvm::DenseSet<Operation *> seen;
  for (Operation &last : llvm::reverse(func.front())) {
    if (!isLink(&last) || seen.contains(&last))
      continue;
    Type type = last.getResult(0).getType();
    Unit chain;
    chain.ops.push_back(&last);
    SetVector<Value> inputs;
    for (size_t i = 0; i < chain.ops.size(); ++i)
      for (Value operand : chain.ops[i]->getOperands()) {
        Operation *link = operand.getDefiningOp();
        if (operand.hasOneUse() && isLink(link) &&
            link->getAttr(kWhenAttrName) == last.getAttr(kWhenAttrName) &&
            link->getLoc() == last.getLoc() && operand.getType() == type)
          chain.ops.push_back(link);
        else
          sources(operand, inputs);
      }
    if (chain.ops.size() < kLongChain)
      continue;
    seen.insert(chain.ops.begin(), chain.ops.end());
    // A chain starts as one unit (one kernel) only if it reads few inputs, each
    // several times, as a convolution does, and not if it sums many inputs.
    if (inputs.size() * 2 > chain.ops.size() ||
        inputs.size() >= kMostArguments || !plan(chain, {last.getResult(0)}))
      continue;
    for (Operation *link : chain.ops)
      origins[link].number = origins.lookup(&last).number;
  }
}

LogicalResult Grouping::createUnits() {
  // All operations into which one operation was decomposed start as one kernel.
  llvm::DenseMap<int, int> unitOfOrigin;
  for (Operation &op : func.front()) {
    Place place = placeOf(&op);
    if (place == Place::Inline)
      continue;
    int number = units.size();
    if (place == Place::Kernel) {
      auto [entry, isNew] =
          unitOfOrigin.try_emplace(origins.lookup(&op).number, number);
      number = entry->second;
    }
    if (number == static_cast<int>(units.size())) {
      units.emplace_back();
      units.back().first = positions[&op];
    }
    Unit &unit = units[number];
    unit.isKernel = place == Place::Kernel;
    unit.ops.push_back(&op);
    unit.when = op.getAttr(kWhenAttrName);
    unit.last = positions[&op];
    unit.reductions += isa<nn::ReduceOp>(op);
    unitOf[&op] = number;
  }
  int calls = 0;
  for (Operation &op : func.front()) {
    callsBefore.push_back(calls);
    calls += placeOf(&op) == Place::Host && !isFreePlacement(&op) &&
             !isa<arith::ConstantOp>(op);
  }
  return success();
}

void Grouping::connect() {
  llvm::DenseMap<Attribute, int> conditions;
  for (auto condition : func.getOps<dist::ConditionOp>())
    conditions[condition.getNumberAttr()] = unitOf.lookup(condition);
  for (auto [number, unit] : llvm::enumerate(units)) {
    SetVector<Value> found;
    if (auto condition = conditions.find(unit.when);
        unit.when && condition != conditions.end())
      unit.producers.insert(condition->second);
    for (Operation *op : unit.ops) {
      unit.scatters |= unit.isKernel && isa<nn::ScatterAddOp>(op);
      for (Value operand : op->getOperands()) {
        if (!unit.isKernel) {
          if (Operation *source = operand.getDefiningOp()) {
            int producer = unitOf.lookup(source);
            if (producer != int(number))
              unit.producers.insert(producer);
          }
          continue;
        }
        sources(operand, found);
      }
    }
    for (Value value : found) {
      Operation *source = value.getDefiningOp();
      if (source && unitOf.lookup(source) == int(number))
        continue;
      if (source)
        unit.producers.insert(unitOf.lookup(source));
      if (typeOf(value).getNumElements() > 1)
        unit.inputs.push_back(value);
    }
    for (int producer : unit.producers)
      units[producer].consumers.insert(number);
  }
  rank();
  for (auto [number, unit] : llvm::enumerate(units)) {
    if (!unit.isKernel)
      continue;
    unit.outputs = outputsOf(unit.ops, number, number);
    auto planned = plan(unit, unit.outputs);
    unit.cost = planned ? planned->cost : kCannotBePlanned;
    unit.parallel = planned && planned->isParallel();
    unit.kind = kindOf(unit);
  }
}

/// Returns a hash of everything on which the kernel plan of a unit (a kernel)
/// depends: its operations, their types, and which operation reads which
/// result.
size_t Grouping::kindOf(const Unit &unit) const {
  llvm::DenseMap<Operation *, int> numbers;
  llvm::hash_code hash = 0;
  SmallVector<Operation *> ops = inlineOps(unit);
  llvm::append_range(ops, unit.ops);
  for (Operation *op : ops) {
    hash = llvm::hash_combine(hash, op->getName(), op->getAttrDictionary(),
                              unitOf.contains(op));
    for (Value operand : op->getOperands())
      hash = llvm::hash_combine(hash, operand.getType(),
                                numbers.lookup(operand.getDefiningOp()));
    for (Type type : op->getResultTypes())
      hash = llvm::hash_combine(hash, type);
    numbers.insert({op, int(numbers.size()) + 1});
  }
  for (Value output : unit.outputs)
    hash = llvm::hash_combine(hash, numbers.lookup(output.getDefiningOp()),
                              cast<OpResult>(output).getResultNumber());
  return hash;
}

/// Numbers the units (kernels and host operations) in a topological order that
/// is close to program order. The search for a path between two units visits
/// only units that are numbered between them, so it visits few units.
void Grouping::rank() {
  int rank = 0;
  for (const Unit *unit : schedule())
    units[unit - units.data()].rank = rank++;
}

/// Returns the results of `ops` that are read outside of the kernels (units)
/// `a` and `b`.
SmallVector<Value> Grouping::outputsOf(ArrayRef<Operation *> ops, int a,
                                       int b) const {
  SmallVector<Value> outputs;
  for (Operation *op : ops)
    for (Value result : op->getResults()) {
      bool read = false;
      SmallVector<Value> worklist = {result};
      llvm::DenseSet<Value> seen;
      while (!worklist.empty() && !read) {
        Value value = worklist.pop_back_val();
        for (Operation *user : value.getUsers()) {
          if (placeOf(user) == Place::Inline) {
            for (Value through : user->getResults())
              if (seen.insert(through).second)
                worklist.push_back(through);
            continue;
          }
          int unit = unitOf.lookup(user);
          if (unit == a || unit == b) {
            continue;
          }
          // If a view on the host reads the value, the value must be in memory,
          // even if only units `a` and `b` read the view.
          read = true;
          break;
        }
      }
      if (read)
        outputs.push_back(result);
    }
  return outputs;
}

std::unique_ptr<KernelPlan> Grouping::plan(const Unit &unit,
                                           ArrayRef<Value> outputs) {
  if (outputs.empty())
    return nullptr;
  ++planCount;
  llvm::DenseSet<Operation *> members(unit.ops.begin(), unit.ops.end());
  std::string error;
  return KernelPlan::create(
      outputs, {},
      [&](Operation *op) {
        return members.contains(op) || placeOf(op) == Place::Inline ||
               (placeOf(op) == Place::Host && isFreePlacement(op));
      },
      error);
}

SmallVector<const Unit *> Grouping::schedule() const {
  std::vector<int> waiting(units.size());
  using Entry = std::pair<int, int>; // position, unit number
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
  for (auto [number, unit] : llvm::enumerate(units)) {
    waiting[number] = unit.producers.size();
    if (unit.alive && unit.producers.empty())
      ready.push({unit.last, number});
  }
  SmallVector<const Unit *> order;
  while (!ready.empty()) {
    const Unit &unit = units[ready.top().second];
    ready.pop();
    order.push_back(&unit);
    for (int consumer : unit.consumers)
      if (--waiting[consumer] == 0)
        ready.push({units[consumer].last, consumer});
  }
  return order;
}

SmallVector<Operation *> Grouping::inlineOps(const Unit &unit) const {
  llvm::DenseSet<Operation *> members(unit.ops.begin(), unit.ops.end());
  SetVector<Operation *> found;
  SmallVector<Value> worklist;
  for (Operation *op : unit.ops)
    llvm::append_range(worklist, op->getOperands());
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op || members.contains(op) || found.contains(op))
      continue;
    bool through = placeOf(op) == Place::Inline ||
                   (placeOf(op) == Place::Host &&
                    (isFreePlacement(op) || isa<arith::ConstantOp>(op)));
    if (!through)
      continue;
    found.insert(op);
    llvm::append_range(worklist, op->getOperands());
  }
  SmallVector<Operation *> result(found.begin(), found.end());
  llvm::sort(result, [&](Operation *x, Operation *y) {
    return positions.lookup(x) < positions.lookup(y);
  });
  return result;
}

std::string Grouping::nameOf(const Unit &unit) const {
  constexpr size_t mostWords = 4;
  // An optimizer's update is decomposed into more operations, a softmax fewer.
  constexpr int manyParts = 8;
  SmallVector<std::string> words;
  SmallVector<bool> isLarge;
  int lastOrigin = -1;
  for (Operation *op : unit.ops) {
    const Origin &origin = origins.lookup(op);
    if (origin.number == lastOrigin)
      continue;
    lastOrigin = origin.number;
    if (!words.empty() && words.back() == origin.name)
      continue;
    words.push_back(origin.name);
    isLarge.push_back(origin.parts >= manyParts);
  }
  // Shortens the name of the kernel to its most informative words: the first,
  // the last, and those of operations that were decomposed into many
  // operations.
  while (words.size() > mostWords) {
    size_t middle = words.size() / 2;
    for (size_t away = 0; away < middle && isLarge[middle]; ++away)
      middle = words.size() / 2 - away;
    words.erase(words.begin() + middle);
    isLarge.erase(isLarge.begin() + middle);
  }
  return llvm::join(words, "_");
}
