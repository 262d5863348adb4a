// Fuses operations that follow a matrix product C = A B into the product
// (epilogues): scale, bias, activation or its derivative, sums.

#include "SelectLibrary.h"
#include "Views.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;

/// If exactly one operand of the binary operation `op` is `value`, returns the
/// other operand; otherwise returns null.
static Value otherOperand(Operation *op, Value value) {
  if (op->getNumOperands() != 2)
    return {};
  Value lhs = op->getOperand(0), rhs = op->getOperand(1);
  if (lhs == value && rhs != value)
    return rhs;
  if (rhs == value && lhs != value)
    return lhs;
  return {};
}

static std::optional<double> splat(Value value) {
  DenseElementsAttr dense;
  if (matchPattern(value, m_Constant(&dense)) && dense.isSplat() &&
      isa<FloatType>(dense.getElementType()))
    return dense.getSplatValue<APFloat>().convertToDouble();
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    return splat(broadcast.getInput());
  return std::nullopt;
}

/// Replaces the operation `op` by the product, into which it was fused. The
/// product moves to the position of `op`, where all operands of `op` are
/// defined.
static void absorb(rt::GemmOp gemm, Operation *op) {
  gemm->moveBefore(op);
  op->getResult(0).replaceAllUsesWith(gemm.getC());
  op->erase();
}

/// Fuses C * constant into the product that computes C.
static bool fuseScale(rt::GemmOp gemm) {
  auto mul = dyn_cast<arith::MulFOp>(*gemm.getC().user_begin());
  if (!mul || gemm.getBias() || gemm.getAccumulator())
    return false;
  Value other = otherOperand(mul, gemm.getC());
  std::optional<double> factor = other ? splat(other) : std::nullopt;
  if (!factor)
    return false;
  gemm.setAlpha(APFloat(gemm.getAlpha().convertToDouble() * *factor));
  absorb(gemm, mul);
  return true;
}

/// Returns the only reader of a value, or null if there is not exactly one.
static Operation *readerOf(Value value) {
  return value.hasOneUse() ? *value.user_begin() : nullptr;
}

/// Fuses C + broadcast(bias), with the bias along the columns, into the product
/// that computes C. In bf16, the program rounds C, extends C and the bias for
/// the sum, and rounds the sum. With `narrow`, all of this is fused, and the
/// product rounds only the sum.
static bool fuseBias(rt::GemmOp gemm, bool narrow) {
  Value c = gemm.getC();
  Type element = getElementTypeOrSelf(gemm.getA());
  narrow &= element.isBF16() && getElementTypeOrSelf(c).isBF16();
  if (narrow && isa_and_nonnull<arith::ExtFOp>(readerOf(c)))
    c = readerOf(c)->getResult(0);
  auto add = dyn_cast_or_null<arith::AddFOp>(readerOf(c));
  if (!add || gemm.getBias() || gemm.getAccumulator())
    return false;
  Operation *last = add;
  if (c != gemm.getC()) {
    last = readerOf(add);
    if (!isa_and_nonnull<arith::TruncFOp>(last) ||
        last->getResult(0).getType() != gemm.getC().getType())
      return false;
  }
  Value other = otherOperand(add, c);
  auto widened = other && c != gemm.getC()
                     ? other.getDefiningOp<arith::ExtFOp>()
                     : nullptr;
  if (widened)
    other = widened.getIn();
  auto broadcast = other ? other.getDefiningOp<nn::BroadcastOp>() : nullptr;
  if (!broadcast || gemm.getCView().back() != 1)
    return false;
  auto type = typeOf(broadcast.getInput());
  if (type.getElementType() != element)
    return false;
  int64_t rank = broadcast.getType().getRank();
  for (auto [index, dim] : llvm::enumerate(broadcast.getDims()))
    if (dim != rank - type.getRank() + int64_t(index))
      return false;
  if (type.getNumElements() != int64_t(gemm.getN()))
    return false;
  StridedView view = traceView(broadcast.getInput());
  if (!view.isContiguous())
    view = denseView(broadcast.getInput());
  gemm.getBiasMutable().assign(view.base);
  gemm.setBiasOffset(view.offset);
  absorb(gemm, last);
  for (Operation *op : {add.getOperation(), c.getDefiningOp()})
    if (op != last && op != gemm)
      op->erase();
  return true;
}

/// Fuses C + D, where D is the result of another product or a gradient
/// accumulator, into the product that computes C. This product then adds to the
/// buffer of D.
static bool fuseSum(rt::GemmOp gemm) {
  auto add = dyn_cast<arith::AddFOp>(*gemm.getC().user_begin());
  if (!add || gemm.getAccumulator() ||
      gemm.getActivation() != rt::Activation::None)
    return false;
  Value other = otherOperand(add, gemm.getC());
  if (!other || !other.hasOneUse())
    return false;
  auto product = other.getDefiningOp<rt::GemmOp>();
  bool accumulates =
      product && other == product.getC() && !product.getKeepPreActivation();
  if (auto argument = dyn_cast<BlockArgument>(other))
    if (auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
      if (std::optional<nn::Role> role =
              nn::roleOf(func, argument.getArgNumber()))
        accumulates = role == nn::Role::Gradient;
  if (!accumulates)
    return false;
  // `gemm` is the later of the two products. It adds to the buffer that the
  // earlier one has written.
  gemm.getAccumulatorMutable().assign(other);
  absorb(gemm, add);
  return true;
}

/// Returns the operation that computes an activation function of `value`; null
/// if there is none. silu(x) is matched as x * sigmoid(x).
static Operation *matchActivation(Value value, rt::Activation &kind) {
  for (Operation *user : value.getUsers()) {
    if (auto gelu = dyn_cast<nn::GeluOp>(user)) {
      kind = gelu.getKind() == nn::GeluKind::Tanh ? rt::Activation::GeluTanh
                                                  : rt::Activation::GeluErf;
      return user;
    }
    // arith.maximumf is not matched, because the library's relu, like maxnumf,
    // turns NaN into 0; this would hide that training has diverged.
    if (isa<arith::MaxNumFOp>(user)) {
      Value other = otherOperand(user, value);
      if (other && splat(other) == 0.0) {
        kind = rt::Activation::Relu;
        return user;
      }
    }
    if (auto sigmoid = dyn_cast<nn::SigmoidOp>(user);
        sigmoid && sigmoid.getResult().hasOneUse()) {
      Operation *mul = *sigmoid.getResult().user_begin();
      if (isa<arith::MulFOp>(mul) &&
          otherOperand(mul, sigmoid.getResult()) == value) {
        kind = rt::Activation::Silu;
        return mul;
      }
    }
  }
  return nullptr;
}

/// Fuses activation(C) into the product that computes C. C itself is also
/// stored if it has other readers.
static void fuseActivation(rt::GemmOp gemm) {
  if (getElementTypeOrSelf(gemm.getC()) != getElementTypeOrSelf(gemm.getA()))
    return; // an unrounded product of bf16
  rt::Activation kind = rt::Activation::None;
  Operation *op = matchActivation(gemm.getC(), kind);
  if (!op)
    return;
  Operation *sigmoid = nullptr;
  if (kind == rt::Activation::Silu)
    for (Value operand : op->getOperands())
      if (auto def = operand.getDefiningOp<nn::SigmoidOp>())
        sigmoid = def;
  SmallPtrSet<Operation *, 2> absorbed = {op};
  if (sigmoid)
    absorbed.insert(sigmoid);
  bool keep = llvm::any_of(gemm.getC().getUsers(), [&](Operation *user) {
    return !absorbed.contains(user);
  });
  gemm.setActivation(kind);
  if (keep) {
    OpBuilder b(gemm);
    SmallVector<Type> types(2, gemm.getC().getType());
    auto wide = rt::GemmOp::create(b, gemm.getLoc(), types, gemm->getOperands(),
                                   gemm->getAttrs());
    wide.setKeepPreActivation(true);
    gemm.getC().replaceAllUsesExcept(wide.getPreActivation(), absorbed);
    op->getResult(0).replaceAllUsesWith(wide.getC());
    op->erase();
    if (sigmoid)
      sigmoid->erase();
    gemm.erase();
    return;
  }
  op->getResult(0).replaceAllUsesWith(gemm.getC());
  op->erase();
  if (sigmoid)
    sigmoid->erase();
}

/// Fuses C * gelu'(x), the cotangent of x, into the product that computes C,
/// which is the cotangent of gelu(x). In bf16, the program rounds C, extends
/// both factors, and rounds the result. The fused product rounds only the
/// result.
static bool fuseDerivative(rt::GemmOp gemm) {
  Type element = getElementTypeOrSelf(gemm.getA());
  if (gemm.getActivation() != rt::Activation::None || gemm.getBias() ||
      gemm.getAccumulator() || getElementTypeOrSelf(gemm.getC()) != element)
    return false;
  Value c = gemm.getC();
  auto widening = dyn_cast_or_null<arith::ExtFOp>(readerOf(c));
  if (widening)
    c = widening.getOut();
  auto grad = dyn_cast_or_null<nn::GeluGradOp>(readerOf(c));
  if (!grad || grad.getKind() != nn::GeluKind::Tanh ||
      grad.getCotangent() != c || grad.getInput() == c)
    return false;
  Operation *last = grad;
  Value at = grad.getInput();
  if (widening) {
    last = readerOf(grad);
    auto widened = at.getDefiningOp<arith::ExtFOp>();
    if (!isa_and_nonnull<arith::TruncFOp>(last) || !widened ||
        last->getResult(0).getType() != gemm.getC().getType())
      return false;
    at = widened.getIn();
  }
  StridedView view = traceView(at);
  if (getElementTypeOrSelf(at) != element || !view.isContiguous() ||
      view.offset != 0)
    return false;
  gemm.getDerivativeAtMutable().assign(view.base);
  gemm.setActivation(rt::Activation::GeluTanh);
  absorb(gemm, last);
  if (widening) {
    grad.erase();
    widening.erase();
  }
  return true;
}

/// Returns whether `sum` sums over the rows of a matrix of shape [rows,
/// columns], which `view` describes as a view of `base`. This requires that its
/// operand is dense in `base`, and that its result has the matrix's columns in
/// order.
static bool sumsColumns(nn::ReduceOp sum, Value base, ArrayRef<int64_t> view,
                        int64_t rows, int64_t columns) {
  Value input = sum.getInput();
  if (auto widened = input.getDefiningOp<arith::ExtFOp>())
    input = widened.getIn();
  StridedView whole = traceView(input);
  int64_t reduced = 1;
  for (auto [index, dim] : llvm::enumerate(sum.getDims())) {
    if (dim != int64_t(index))
      return false;
    reduced *= whole.sizes[dim];
  }
  return sum.getCombiner() == nn::Combiner::Sum && whole.base == base &&
         getElementTypeOrSelf(input) == getElementTypeOrSelf(base) &&
         whole.isContiguous() && reduced == rows &&
         sum.getInput().getType().getNumElements() == rows * columns &&
         view == ArrayRef<int64_t>({whole.offset, columns, 1});
}

/// Fuses `sum`, the sum of each column of an operand A^T or B, into the
/// product. If the operand is a cotangent and C is a weight gradient, these
/// sums are the bias gradient.
static bool fuseOperandSum(rt::GemmOp gemm, nn::ReduceOp sum) {
  auto type = typeOf(sum);
  if (!gemm.getBatch().empty() || gemm.getBias() ||
      !gemm.getAlpha().isExactlyValue(1.0) ||
      gemm.getActivation() != rt::Activation::None ||
      gemm.getKeepPreActivation() || gemm.getSumsOf() != rt::SumsOf::None ||
      gemm.getDerivativeAt() ||
      type.getElementType() != getElementTypeOrSelf(gemm.getC()))
    return false;
  // The column sums run over the contracted dimension k: the rows of B or A^T.
  ArrayRef<int64_t> a = gemm.getAView(), b = gemm.getBView();
  int64_t m = gemm.getM(), n = gemm.getN(), k = gemm.getK();
  rt::SumsOf operand = rt::SumsOf::None;
  if (sumsColumns(sum, gemm.getB(), b, k, n))
    operand = rt::SumsOf::B;
  else if (sumsColumns(sum, gemm.getA(), {a[0], a[2], a[1]}, k, m))
    operand = rt::SumsOf::A;
  else
    return false;
  // The new product returns C and the column sums, so it must come before the
  // first reader of the column sums. This is possible only if all operands of
  // the product are computed before that reader.
  Operation *first = gemm;
  for (Operation *user : sum->getUsers())
    if (user->getBlock() != gemm->getBlock())
      return false;
    else if (user->isBeforeInBlock(first))
      first = user;
  if (llvm::any_of(gemm->getOperands(), [&](Value operand) {
        Operation *def = operand.getDefiningOp();
        return def && (def == sum || !def->isBeforeInBlock(first));
      }))
    return false;
  OpBuilder builder(first);
  auto wide = rt::GemmOp::create(builder, gemm.getLoc(),
                                 TypeRange{gemm.getC().getType(), type},
                                 gemm->getOperands(), gemm->getAttrs());
  wide.setSumsOf(operand);
  gemm.getC().replaceAllUsesWith(wide.getC());
  sum.getResult().replaceAllUsesWith(wide.getSums());
  gemm.erase();
  sum.erase();
  return true;
}

void cleave::fuseOperandSums(func::FuncOp func) {
  for (auto sum : llvm::make_early_inc_range(func.getOps<nn::ReduceOp>())) {
    Value input = sum.getInput();
    if (auto widened = input.getDefiningOp<arith::ExtFOp>())
      input = widened.getIn();
    for (Operation *user : traceView(input).base.getUsers())
      if (auto gemm = dyn_cast<rt::GemmOp>(user);
          gemm && fuseOperandSum(gemm, sum))
        break;
  }
}

void cleave::fuseEpilogue(rt::GemmOp gemm, program::Device device) {
  if (gemm.getC().hasOneUse() && fuseScale(gemm) && !gemm.getC().hasOneUse())
    return;
  if (gemm.getC().hasOneUse())
    fuseBias(gemm, device == program::Device::Cuda);
  if (gemm.getC().hasOneUse() && fuseSum(gemm))
    return;
  if (device == program::Device::Cuda && fuseDerivative(gemm))
    return;
  fuseActivation(gemm);
}
