// Inserts sharding constraints around the matrix products with parameters under
// tensor parallelism. Operands are gathered to the layout in which the product
// reads them (TensorScheme.h). Results are converted to their home layout, in
// which values are kept between products (Colours::home).

#include "Residuals.h"
#include "TensorPlan.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

class Pinner {
public:
  Pinner(func::FuncOp func, dist::MeshOp mesh, const TensorScheme &scheme,
         const Colours &colours, const Products &products)
      : func(func), mesh(mesh), scheme(scheme), colours(colours),
        products(products) {}

  void run() {
    SmallVector<Operation *> operations;
    for (Operation &op : func.getBody().front().without_terminator())
      if (products.contains(&op))
        operations.push_back(&op);
    for (Operation *op : operations)
      pinOperands(op, products.find(op)->second);
    for (Operation *op : operations)
      pinResults(op, products.find(op)->second);
    for (Operation *op : operations)
      if (!products.find(op)->second.makesGradient)
        pinSum(op);
    for (Operation *op : replaced)
      while (op && op->use_empty()) {
        Operation *before = op->getOperand(0).getDefiningOp();
        bool wasSave = isa<nn::SaveOp>(op);
        op->erase();
        op = wasSave ? nullptr : before;
      }
  }

private:
  dist::ConstrainOp constrain(OpBuilder &builder, Value value,
                              const Axes &axes) {
    return dist::ConstrainOp::create(builder, value.getLoc(), value.getType(),
                                     value, closedSharding(mesh, axes));
  }

  void pinOperands(Operation *op, const Product &product) {
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      Operation *def = value.getDefiningOp();
      if (def && def->getNumOperands() == 0)
        continue; // such as a constant: computed in any layout
      Axes axes =
          product.layoutOf(product.rule.operands[operand.getOperandNumber()]);
      operand.set(gathered(op, operand, axes));
    }
  }

  /// Returns the value of an operand of `op` in the layout `axes`, in which the
  /// product with a parameter reads it.
  Value gathered(Operation *op, OpOperand &operand, const Axes &axes) {
    Value value = operand.get();
    OpBuilder builder(op);
    dist::ShardingAttr sharding = closedSharding(mesh, axes);
    Value &known = pinned[{value, sharding}];
    if (known)
      return known;
    if (Value source = scheme.keepGathered ? savedFrom(value) : Value()) {
      // `value` is an operand that the forward pass saves. If a product of the
      // forward pass has gathered this operand, the gathered operand is saved
      // instead of the rank's shard.
      auto forward = pinned.find({source, sharding});
      if (forward != pinned.end() && forward->second) {
        Value whole = forward->second;
        builder.setInsertionPointAfter(whole.getDefiningOp());
        replaced.insert(value.getDefiningOp());
        return known = nn::SaveOp::create(builder, whole.getLoc(), whole);
      }
    }
    return known = constrain(builder, value, axes);
  }

  /// Constrains the results of a product to the layout in which the product
  /// computes them. They may be partial sums.
  void pinResults(Operation *op, const Product &product) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    for (OpResult result : op->getResults()) {
      unsigned index = result.getResultNumber();
      auto constrained = dist::ConstrainOp::create(
          builder, result.getLoc(), result.getType(), result,
          closedSharding(mesh, product.layoutOf(product.rule.results[index]),
                         product.partialOf(index)));
      result.replaceAllUsesExcept(constrained, constrained);
    }
  }

  /// Follows the result of `op` through the additions of which it is a term.
  /// Constrains the last sum to its home layout, in which it is kept between
  /// products (Colours::home).
  void pinSum(Operation *op) {
    if (op->getNumResults() != 1 || op->use_empty())
      return;
    // After pinResults, the only reader of the result is a constraint.
    Value made = op->user_begin()->getResult(0);
    Value sum = sumThatReceives(made);
    std::optional<Axes> home =
        colours.home(sum == made ? Value(op->getResult(0)) : sum);
    if (!home || !atHome.insert(sum).second)
      return;
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfterValue(sum);
    auto constrained = constrain(builder, sum, *home);
    sum.replaceAllUsesExcept(constrained, constrained);
  }

  func::FuncOp func;
  dist::MeshOp mesh;
  const TensorScheme &scheme;
  const Colours &colours;
  const Products &products;
  DenseMap<std::pair<Value, Attribute>, Value> pinned;
  DenseSet<Value> atHome;
  llvm::SmallSetVector<Operation *, 8> replaced;
};

} // namespace

void strategy::pinProducts(func::FuncOp func, dist::MeshOp mesh,
                           const TensorScheme &scheme, const Colours &colours,
                           const Products &products) {
  Pinner(func, mesh, scheme, colours, products).run();
}
