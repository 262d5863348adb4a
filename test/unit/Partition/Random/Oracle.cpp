#include "Oracle.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

/// Returns whether an operation does not round if its operands are exact and
/// below 2^53.
bool isExact(Operation *op) {
  if (auto pad = dyn_cast<nn::PadOp>(op))
    return pad.getValue().isInteger();
  if (llvm::all_of(op->getResultTypes(), [](Type type) {
        return !isa<FloatType>(getElementTypeOrSelf(type));
      }))
    return true;
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp,
             arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
             arith::MinNumFOp, arith::RemFOp, arith::SelectOp,
             arith::ConstantOp, arith::SIToFPOp, arith::UIToFPOp, arith::ExtFOp,
             arith::TruncFOp, arith::BitcastOp, math::AbsFOp, math::FloorOp,
             math::CeilOp, math::RoundOp, math::RoundEvenOp, math::TruncOp,
             math::CopySignOp, math::FmaOp, nn::BroadcastOp, nn::ReshapeOp,
             nn::TransposeOp, nn::SliceOp, nn::ConcatOp, nn::IotaOp, nn::SaveOp,
             nn::RematerializeOp, nn::EinsumOp, nn::ReduceOp, nn::GatherOp,
             nn::ScatterAddOp, nn::DropoutOp, nn::RotaryOp, nn::SgdOp,
             nn::ConvOp, nn::ConvInputGradOp, nn::ConvFilterGradOp, nn::PoolOp,
             nn::PoolGradOp, nn::TopKOp, dist::ConstrainOp>(op);
}

double magnitudeOf(const Tensor &tensor) {
  double largest = 0;
  for (double value : tensor.floats)
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  return largest;
}

/// Statistics of a value, collected while the program ran on one device.
struct Measured {
  double magnitude = 0;
  int64_t size = 0;
  bool integers = true;
};

/// Computes the tolerance of each value, one operation after the other, from
/// statistics of the values in a run on one device (Measured).
class Tolerances {
public:
  explicit Tolerances(const llvm::DenseMap<Value, Measured> &measured)
      : measured(measured) {}

  Tolerance of(Value value) const { return known.lookup(value); }

  void visit(Block &block) {
    for (Value argument : block.getArguments())
      known.try_emplace(argument,
                        Tolerance{measured.lookup(argument).magnitude,
                                  measured.lookup(argument).integers});
    for (Operation &op : block.without_terminator()) {
      if (auto loop = dyn_cast<scf::ForOp>(op))
        visitLoop(loop);
      else if (auto branch = dyn_cast<scf::IfOp>(op))
        visitBranch(branch);
      else if (auto scan = dyn_cast<nn::ScanOp>(op))
        visitScan(scan);
      else
        visitOperation(&op);
    }
  }

private:
  void visitOperation(Operation *op) {
    Tolerance from = {0, isExact(op)};
    double product = 1;
    for (Value operand : op->getOperands()) {
      Tolerance other = of(operand);
      merge(from, other);
      product *= 16 + other.magnitude;
      product *= measured.lookup(operand).size + 1;
    }
    // Sums of products are exact only if they stay well below 2^53, the limit
    // of exact integers in a double.
    from.exact &= product < 0x1p52;
    for (Value result : op->getResults()) {
      known[result] = from;
      merge(known[result], {measured.lookup(result).magnitude, true});
    }
  }

  static bool merge(Tolerance &into, Tolerance other) {
    bool changed =
        (into.exact && !other.exact) || other.magnitude > into.magnitude;
    into.exact &= other.exact;
    into.magnitude = std::max(into.magnitude, other.magnitude);
    return changed;
  }

  void visitLoop(scf::ForOp loop) {
    for (auto [argument, init] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs()))
      known[argument] = of(init);
    visitUntilStable(*loop.getBody(), loop.getRegionIterArgs(),
                     loop.getYieldedValues());
    std::optional<APInt> trips = loop.getStaticTripCount();
    for (auto [argument, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
      known[result] =
          afterIterations(of(argument), trips ? trips->getSExtValue() : 1);
  }

  void visitScan(nn::ScanOp scan) {
    for (auto [argument, operand] :
         llvm::zip_equal(scan.getBody()->getArguments(), scan.getOperands()))
      known[argument] = of(operand);
    visitUntilStable(*scan.getBody(), scan.getCarriedArguments(),
                     scan.getYieldedCarries());
    int64_t grows = scan.getInits().empty() ? 1 : scan.getTrips();
    for (auto [argument, result] :
         llvm::zip_equal(scan.getCarriedArguments(), scan.getFinals()))
      known[result] = afterIterations(of(argument), grows);
    for (auto [yielded, result] :
         llvm::zip_equal(scan.getYieldedStacked(), scan.getStacked())) {
      Tolerance one = of(yielded);
      known[result] = one.exact ? one : afterIterations(one, grows);
    }
  }

  /// Visits the body of a loop until the tolerances of the carried values no
  /// longer change.
  void visitUntilStable(Block &body, ValueRange arguments, ValueRange yields) {
    for (bool changed = true; changed;) {
      changed = false;
      visit(body);
      for (auto [argument, yielded] : llvm::zip_equal(arguments, yields))
        changed |= merge(known[argument], of(yielded));
    }
  }

  /// In each iteration of a loop, an error may grow by the same factor as the
  /// values.
  static Tolerance afterIterations(Tolerance carried, int64_t trips) {
    double more = trips > 2 ? double(trips - 1) : 1;
    carried.magnitude = std::pow(std::max(8.0, carried.magnitude), more);
    return carried;
  }

  void visitBranch(scf::IfOp branch) {
    visit(*branch.thenBlock());
    visit(*branch.elseBlock());
    for (auto [index, result] : llvm::enumerate(branch.getResults())) {
      known[result] = of(branch.thenYield().getOperand(index));
      merge(known[result], of(branch.elseYield().getOperand(index)));
    }
  }

  const llvm::DenseMap<Value, Measured> &measured;
  llvm::DenseMap<Value, Tolerance> known;
};

} // namespace

Tensor cleave::random::randomTensor(Random &random, RankedTensorType type) {
  Tensor tensor(type);
  for (double &value : tensor.floats)
    value = random.between(-3, 3);
  bool isBool = type.getElementType().isInteger(1);
  for (int64_t &value : tensor.ints)
    value = isBool ? random.below(2) : random.between(-1, 6);
  return tensor;
}

FailureOr<Oracle> Oracle::of(func::FuncOp func, ArrayRef<Tensor> arguments) {
  llvm::DenseMap<Value, Measured> measured;
  auto observe = [&](Value value, const Tensor &tensor) {
    Measured &entry = measured[value];
    entry.magnitude = std::max(entry.magnitude, magnitudeOf(tensor));
    entry.size = tensor.size();
    entry.integers &= llvm::all_of(
        tensor.floats, [](double x) { return x == std::nearbyint(x); });
  };
  FailureOr<std::vector<Tensor>> results = interpret(func, arguments, observe);
  if (failed(results))
    return failure();
  Block &body = func.getBody().front();
  Tolerances tolerances(measured);
  tolerances.visit(body);
  Oracle oracle;
  oracle.results = std::move(*results);
  for (Value value : body.getTerminator()->getOperands())
    oracle.tolerances.push_back(tolerances.of(value));
  return oracle;
}

/// Returns a description of the difference, or an empty string if the tensors
/// agree.
std::string cleave::random::difference(const Tensor &want, const Tensor &got,
                                       Tolerance tolerance) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (int64_t at = 0; at < want.size(); ++at) {
    if (!want.isFloat()) {
      if (got.ints[at] != want.ints[at]) {
        out << "at " << at << " " << got.ints[at] << ", expected "
            << want.ints[at];
        return text;
      }
      continue;
    }
    double a = got.floats[at], b = want.floats[at];
    if (a == b || (a != a && b != b))
      continue;
    double allowed =
        tolerance.exact ? 0 : 1e-12 * std::max(8.0, tolerance.magnitude);
    if (!(std::abs(a - b) <= allowed)) {
      out << "at " << at << " " << a << ", expected " << b;
      if (tolerance.exact)
        out << " to the bit";
      return text;
    }
  }
  return text;
}
