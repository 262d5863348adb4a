// Finds operations of the model that compute something different, or have the
// batch in a different dimension, if the model is imported with a different
// batch size.

#include "SplitLoss.h"

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

using TwinMap =
    llvm::DenseMap<Operation *, llvm::SmallSetVector<Operation *, 2>>;

/// Compares the shapes of a value for `from` samples and for `to` samples.
/// Returns the only dimension that differs, if it is the batch or merges the
/// batch, as the outermost factor, with other dimensions. Returns -1 if no
/// dimension differs, and nullopt if the shapes differ in any other way.
static std::optional<int64_t> differingDim(Value value, Value twin,
                                           int64_t from, int64_t to) {
  ArrayRef<int64_t> a = typeOf(value).getShape(), b = typeOf(twin).getShape();
  int64_t found = -1;
  if (a.size() != b.size())
    return std::nullopt;
  for (auto [dim, sizes] : llvm::enumerate(llvm::zip(a, b))) {
    auto [x, y] = sizes;
    if (x == y)
      continue;
    if (found >= 0 || x % from != 0 || x / from * to != y)
      return std::nullopt;
    found = dim;
  }
  return found;
}

/// Returns whether two operations have equal attributes. Attributes that state
/// the shape of the operation's result, such as that of a reshape, may differ.
static bool haveLikeAttributes(Operation *op, Operation *twin) {
  auto isShape = [](Attribute value, Operation *of) {
    auto sizes = dyn_cast_if_present<DenseI64ArrayAttr>(value);
    return sizes && of->getNumResults() &&
           sizes.asArrayRef() == typeOf(of->getResult(0)).getShape();
  };
  DictionaryAttr own = op->getAttrDictionary(),
                 others = twin->getAttrDictionary();
  return own.size() == others.size() &&
         llvm::all_of(own, [&](NamedAttribute named) {
           Attribute value = named.getValue(),
                     other = others.get(named.getName());
           return value == other ||
                  (isShape(value, op) && isShape(other, twin));
         });
}

/// Returns whether both operations are constants with different elements, or
/// both are iotas of different sizes.
static bool hasOtherNumbers(Operation *op, Operation *twin) {
  DenseElementsAttr a, b;
  if (matchPattern(op, m_Constant(&a)) && matchPattern(twin, m_Constant(&b)))
    return a != b &&
           !(a.isSplat() && b.isSplat() &&
             a.getSplatValue<Attribute>() == b.getSplatValue<Attribute>());
  auto iota = dyn_cast<nn::IotaOp>(op);
  return iota && typeOf(iota).getDimSize(iota.getDim()) !=
                     typeOf(twin->getResult(0)).getDimSize(iota.getDim());
}

/// Returns whether the regions of two operations have the same operations with
/// the same numbers. Shapes are not compared: those of results and operands of
/// the whole operations are.
static bool haveLikeRegions(Operation *op, Operation *twin) {
  if (op->getNumRegions() != twin->getNumRegions())
    return false;
  SmallVector<Operation *> own, others;
  for (Region &region : op->getRegions())
    region.walk([&](Operation *inner) { own.push_back(inner); });
  for (Region &region : twin->getRegions())
    region.walk([&](Operation *inner) { others.push_back(inner); });
  return own.size() == others.size() &&
         llvm::all_of(llvm::zip(own, others), [](auto pair) {
           auto [a, b] = pair;
           return a->getName() == b->getName() && !hasOtherNumbers(a, b) &&
                  (matchPattern(a, m_Constant()) || haveLikeAttributes(a, b));
         });
}

/// Compares an operation of `step` with `twin`, the same operation of the model
/// imported with `samples` samples. Returns whether both do the same for each
/// sample, so that their results differ only in the size of the batch
/// dimension.
///
/// An operand that does not depend on samples may also have a dimension with
/// the batch size, for example if a row is broadcast for every sample. The
/// operation must then have the same dimension in its results, as an
/// elementwise operation does.
bool LossSplitter::isLike(Operation *op, Operation *twin,
                          int64_t samples) const {
  if (!flow || op->hasTrait<OpTrait::IsTerminator>())
    return true;
  if (!matchPattern(op, m_Constant()) && !haveLikeAttributes(op, twin))
    return false;
  if (!haveLikeRegions(op, twin))
    return false;
  auto differing = [&](Value value, Value other) {
    return differingDim(value, other, flow->size(), samples);
  };
  for (auto [value, other] : llvm::zip(op->getResults(), twin->getResults())) {
    std::optional<int64_t> dim = differing(value, other);
    if (!dim)
      return false;
    if (isBatched(value) && *dim != flow->majorDimOf(value).value_or(-1))
      return false;
  }
  if (llvm::any_of(op->getResults(), [&](Value v) { return isBatched(v); }))
    return true;
  ShardingRule rule = ShardingRule::of(op);
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    std::optional<int64_t> dim = differing(operand, twin->getOperand(index));
    if (!dim)
      return false;
    if (*dim < 0)
      continue;
    const DimFactors &made = rule.operands[index][*dim];
    if (made.empty() ||
        rule.factors[made.front()].kind != FactorKind::PassThrough)
      return false;
    for (auto [number, result] : llvm::enumerate(op->getResults())) {
      int64_t at = *differing(result, twin->getResult(number));
      if (at < 0 || rule.results[number][at].empty() ||
          rule.results[number][at].front() != made.front())
        return false;
    }
  }
  return true;
}

/// `block` and `other` are two imports of the model with different batch sizes.
/// For each operation of `block` that the results of `block` depend on, finds
/// the operations of `other` that compute the same. There are several if
/// operations were merged in `block` but not in `other`, such as two constants
/// that are equal only in `block`.
static FailureOr<TwinMap> findTwins(Block &block, Block &other) {
  TwinMap twins;
  twins[block.getTerminator()].insert(other.getTerminator());
  // The walk is backwards, so that users are visited before the values that
  // they use.
  for (Operation &op : llvm::reverse(block)) {
    auto found = twins.find(&op);
    if (found == twins.end())
      continue;
    SmallVector<Operation *> own = found->second.takeVector();
    for (Operation *twin : own) {
      if (op.getName() != twin->getName() ||
          op.getNumOperands() != twin->getNumOperands() ||
          op.getNumResults() != twin->getNumResults())
        return failure();
      for (auto [a, b] : llvm::zip(op.getOperands(), twin->getOperands())) {
        auto x = dyn_cast<OpResult>(a), y = dyn_cast<OpResult>(b);
        if (bool(x) != bool(y) ||
            (x ? x.getResultNumber() != y.getResultNumber()
               : cast<BlockArgument>(a).getArgNumber() !=
                     cast<BlockArgument>(b).getArgNumber()))
          return failure();
        if (x)
          twins[x.getOwner()].insert(y.getOwner());
      }
    }
    twins[&op].insert(own.begin(), own.end());
  }
  return twins;
}

/// `step` and `other` are the model, imported with two batch sizes. Finds the
/// operations that differ between them in more than the size of the batch
/// dimension: constants and iotas that depend on the batch size, and operations
/// whose shapes or attributes differ. The latter are added to `unlike`. The
/// results of all these operations, and all values that are computed from them,
/// are added to `varying`.
LogicalResult LossSplitter::findVarying(func::FuncOp other) {
  if (!other)
    return failure();
  auto others = nn::BatchFlow::ofArguments(other);
  if (bool(flow) != bool(others))
    return failure();
  Block &block = step.getBody().front();
  FailureOr<TwinMap> twins = findTwins(block, other.getBody().front());
  if (failed(twins))
    return failure();
  for (Operation &op : block) {
    bool varies = llvm::any_of(op.getOperands(),
                               [&](Value v) { return varying.contains(v); });
    for (Operation *twin : twins->lookup(&op)) {
      varies |= hasOtherNumbers(&op, twin);
      if (isLike(&op, twin, others ? others->size() : 1))
        continue;
      unlike.insert(&op);
      varies = true;
    }
    if (varies)
      varying.insert(op.result_begin(), op.result_end());
  }
  return success();
}
