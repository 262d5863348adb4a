// nn-pad-classes: pads the classes of logits so that each row of logits is
// aligned to 16 bytes.

#include "cleave/Conversion/ToRT/Passes.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

namespace cleave {
#define GEN_PASS_DEF_PADCLASSESPASS
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// The alignment of rows in bytes, and the smallest number of classes for which
/// logits are padded.
static constexpr int64_t kRowBytes = 16, kManyClasses = 128;

/// Returns the type with its last dimension changed to `size`.
static RankedTensorType withLast(RankedTensorType type, int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = size;
  return type.clone(shape);
}

static Value padded(OpBuilder &b, Value value, int64_t dim, int64_t size,
                    double with) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> shape(type.getShape()), low(type.getRank()),
      high(type.getRank());
  high[dim] = size - shape[dim];
  shape[dim] = size;
  return nn::PadOp::create(
      b, value.getLoc(), type.clone(shape), value, b.getDenseI64ArrayAttr(low),
      b.getDenseI64ArrayAttr(high), b.getF64FloatAttr(with));
}

static Value cut(OpBuilder &b, Value value, RankedTensorType type) {
  SmallVector<int64_t> offsets(type.getRank()), strides(type.getRank(), 1);
  return nn::SliceOp::create(
      b, value.getLoc(), type, value, b.getDenseI64ArrayAttr(offsets),
      b.getDenseI64ArrayAttr(type.getShape()), b.getDenseI64ArrayAttr(strides));
}

namespace {

/// Pads the logits that a product computes, together with their readers.
class Logits {
public:
  explicit Logits(nn::EinsumOp product)
      : product(product), b(product),
        classes(typeOf(product).getShape().back()) {
    int64_t bytes = typeOf(product).getElementTypeBitWidth() / 8;
    wide = llvm::alignTo(classes, std::max<int64_t>(1, kRowBytes / bytes));
  }

  /// Returns whether the logits can be padded: they have enough unaligned
  /// classes, only losses read them, and only products read their cotangents.
  bool match() {
    nn::EinsumOp::Labels labels = product.getLabels();
    return wide != classes && classes >= kManyClasses &&
           isOfOne(product, labels.result.back()) && collect(product) &&
           !losses.empty() && llvm::none_of(readers, [&](nn::EinsumOp reader) {
             return isCotangent(reader.getLhs()) &&
                    isCotangent(reader.getRhs());
           });
  }

  void rewrite() {
    llvm::DenseMap<Value, Value> wider;
    wider.try_emplace(
        product,
        widened(product, product.getLabels().result.back(), Value(), Value()));
    for (Operation *op : copies) {
      b.setInsertionPoint(op);
      Operation *copy = b.clone(*op);
      copy->setOperand(0, wider.at(op->getOperand(0)));
      copy->getResult(0).setType(withLast(typeOf(op->getResult(0)), wide));
      wider.try_emplace(op->getResult(0), copy->getResult(0));
    }
    for (nn::CrossEntropyOp op : losses) {
      b.setInsertionPoint(op);
      op.getLogitsMutable().assign(masked(op.getLogits(), wider));
      op.getLabelsMutable().assign(counted(op.getLabels()));
    }
    for (nn::CrossEntropyGradOp op : gradients) {
      b.setInsertionPoint(op);
      auto type = withLast(typeOf(op), wide);
      wider.try_emplace(op, nn::CrossEntropyGradOp::create(
                                b, op.getLoc(), type, op.getCotangent(),
                                masked(op.getLogits(), wider),
                                counted(op.getLabels()), op.getLse(),
                                op.getIgnoreIndex()));
    }
    for (arith::TruncFOp op : roundings) {
      b.setInsertionPoint(op);
      auto rounded = arith::TruncFOp::create(
          b, op.getLoc(), withLast(typeOf(op), wide), wider.at(op.getIn()));
      rounded->setDiscardableAttrs(op->getDiscardableAttrDictionary());
      wider.try_emplace(op, rounded);
    }
    // The products are rewritten in program order, so that a matrix with
    // several readers is padded before its first reader.
    auto inOrder = readers.takeVector();
    llvm::sort(inOrder, [](nn::EinsumOp a, nn::EinsumOp b) {
      return a->isBeforeInBlock(b);
    });
    for (nn::EinsumOp op : inOrder) {
      auto find = [&](Value value) {
        auto found = wider.find(value);
        return found == wider.end() ? Value() : found->second;
      };
      Value lhs = find(op.getLhs()), rhs = find(op.getRhs());
      b.setInsertionPoint(op);
      nn::EinsumOp::Labels labels = op.getLabels();
      char label = lhs ? labels.lhs.back() : labels.rhs.back();
      Value result = widened(op, label, lhs, rhs);
      if (result.getType() != op.getType())
        result = cut(b, result, typeOf(op));
      op.replaceAllUsesWith(result);
      op.erase();
    }
    // Erases the replaced operations, users first.
    for (arith::TruncFOp op : roundings)
      op.erase();
    for (nn::CrossEntropyGradOp op : gradients)
      op.erase();
    for (Operation *op : llvm::reverse(copies))
      op->erase();
    product.erase();
  }

private:
  /// Returns whether exactly one operand has the label `label`, the dimension
  /// of classes. If both operands had it, it would be a batch dimension.
  static bool isOfOne(nn::EinsumOp op, char label) {
    nn::EinsumOp::Labels labels = op.getLabels();
    return StringRef(labels.lhs).contains(label) !=
           StringRef(labels.rhs).contains(label);
  }

  bool collect(Value value) {
    for (Operation *user : value.getUsers()) {
      if (isa<nn::SaveOp, arith::ExtFOp>(user)) {
        copies.insert(user);
        if (!collect(user->getResult(0)))
          return false;
      } else if (auto loss = dyn_cast<nn::CrossEntropyOp>(user)) {
        losses.insert(loss);
      } else if (auto gradient = dyn_cast<nn::CrossEntropyGradOp>(user)) {
        if (gradient.getLogits() != value)
          return false;
        if (gradients.insert(gradient) && !collectReaders(gradient))
          return false;
      } else {
        return false;
      }
    }
    return true;
  }

  /// Collects the products that read a cotangent, possibly rounded.
  bool collectReaders(Value cotangent) {
    for (Operation *user : cotangent.getUsers()) {
      if (auto rounding = dyn_cast<arith::TruncFOp>(user)) {
        roundings.insert(rounding);
        if (!collectReaders(rounding))
          return false;
        continue;
      }
      auto reader = dyn_cast<nn::EinsumOp>(user);
      if (!reader)
        return false;
      readers.insert(reader);
    }
    return true;
  }

  bool isCotangent(Value value) const {
    Operation *op = value.getDefiningOp();
    if (auto rounding = dyn_cast_or_null<arith::TruncFOp>(op))
      return roundings.contains(rounding);
    auto gradient = dyn_cast_or_null<nn::CrossEntropyGradOp>(op);
    return gradient && gradients.contains(gradient);
  }

  /// Creates the product `op` with its classes (dimension `label`) padded by
  /// zeros. `lhs` and `rhs` are the operands if these are already padded;
  /// otherwise null.
  Value widened(nn::EinsumOp op, char label, Value lhs, Value rhs) {
    nn::EinsumOp::Labels labels = op.getLabels();
    auto operand = [&](Value value, Value wider, StringRef names) -> Value {
      size_t dim = names.find(label);
      if (wider || dim == StringRef::npos)
        return wider ? wider : value;
      // A padded matrix is stored, so that other products can read it. The
      // product that computes the logits is rewritten first.
      Value &known = matrices[{value, dim}];
      if (!known)
        known = padded(b, value, dim, wide, 0);
      return known;
    };
    Value a = operand(op.getLhs(), lhs, labels.lhs),
          c = operand(op.getRhs(), rhs, labels.rhs);
    SmallVector<int64_t> shape(typeOf(op).getShape());
    if (size_t dim = labels.result.find(label); dim != std::string::npos)
      shape[dim] = wide;
    return nn::EinsumOp::create(b, op.getLoc(), typeOf(op).clone(shape),
                                op.getEquationAttr(), a, c);
  }

  /// Creates the logits with -inf in padded classes, so that the probability of
  /// these classes is exactly 0.
  Value masked(Value logits, const llvm::DenseMap<Value, Value> &wider) {
    Value own = cut(b, wider.at(logits), typeOf(logits));
    return padded(b, own, typeOf(logits).getRank() - 1, wide,
                  -std::numeric_limits<double>::infinity());
  }

  /// Returns the class labels for padded logits. A label that is not one of the
  /// original classes must not become a padded class, so it is replaced by the
  /// new number of classes.
  Value counted(Value labels) {
    Value &known = inRange[labels];
    if (known)
      return known;
    // The loss and its gradient read the same new labels, so that they can
    // still be fused.
    OpBuilder b(labels.getContext());
    b.setInsertionPointAfterValue(labels);
    Location loc = labels.getLoc();
    auto of = [&](int64_t value) -> Value {
      RankedTensorType type = typeOf(labels);
      return arith::ConstantOp::create(
          b, loc,
          DenseElementsAttr::get(
              type, b.getIntegerAttr(type.getElementType(), value)));
    };
    Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                                         labels, of(classes));
    known = arith::SelectOp::create(b, loc, inside, labels, of(wide));
    return known;
  }

  nn::EinsumOp product;
  OpBuilder b;
  int64_t classes, wide;
  llvm::DenseMap<std::pair<Value, size_t>, Value> matrices;
  llvm::DenseMap<Value, Value> inRange;
  /// The operations to rewrite: operations that copy the logits, in order;
  /// losses and their gradients; operations that round a cotangent of the
  /// logits; and products that read such a cotangent.
  llvm::SetVector<Operation *> copies;
  llvm::SetVector<nn::CrossEntropyOp> losses;
  llvm::SetVector<nn::CrossEntropyGradOp> gradients;
  llvm::SetVector<arith::TruncFOp> roundings;
  llvm::SetVector<nn::EinsumOp> readers;
};

struct PadClassesPass : cleave::impl::PadClassesPassBase<PadClassesPass> {
  using Base::Base;

  void runOnOperation() override {
    for (func::FuncOp func : commandListsOf(getOperation()))
      while (padOne(func))
        ;
  }

  /// Pads the logits of one product and returns true; returns false if there
  /// are none to pad. The caller then searches again, because later products
  /// may read the cotangent of these logits.
  static bool padOne(func::FuncOp func) {
    for (auto op : func.getOps<nn::EinsumOp>())
      if (typeOf(op).getRank() > 0)
        if (Logits logits(op); logits.match()) {
          logits.rewrite();
          return true;
        }
    return false;
  }
};
} // namespace
