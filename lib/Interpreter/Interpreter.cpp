// The walk over a function's operations.

#include "cleave/Interpreter/Interpreter.h"
#include "RankOps.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;

void cleave::poison(Tensor &tensor) {
  std::fill(tensor.floats.begin(), tensor.floats.end(),
            std::numeric_limits<double>::quiet_NaN());
  std::fill(tensor.ints.begin(), tensor.ints.end(), int64_t(1) << 40);
}

Tensor cleave::tensorFromAttr(DenseElementsAttr attr) {
  Tensor tensor(cast<RankedTensorType>(attr.getType()));
  if (tensor.isFloat()) {
    for (auto [i, value] : llvm::enumerate(attr.getValues<APFloat>())) {
      bool losesInfo;
      APFloat wide = value;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                   &losesInfo);
      tensor.floats[i] = wide.convertToDouble();
    }
    return tensor;
  }
  bool isBool = attr.getElementType().isInteger(1);
  for (auto [i, value] : llvm::enumerate(attr.getValues<APInt>()))
    tensor.ints[i] = isBool ? value.getZExtValue() : value.getSExtValue();
  return tensor;
}

namespace {

/// Values of one function on all ranks.
class Machine {
public:
  Machine(dist::MeshAttr mesh, int64_t ranks) : mesh(mesh), ranks(ranks) {}

  FailureOr<std::vector<RankTensors>> run(func::FuncOp func,
                                          ArrayRef<RankTensors> arguments) {
    if (func.isDeclaration())
      return func.emitError("is only declared and cannot be interpreted");
    if (arguments.size() != func.getNumArguments())
      return func.emitError("takes ")
             << func.getNumArguments() << " arguments, but " << arguments.size()
             << " were given";
    Block &body = func.getBody().front();
    for (auto [argument, value] : llvm::zip(body.getArguments(), arguments)) {
      if (value.empty() || value.front().type != argument.getType())
        return func.emitError("argument ")
               << argument.getArgNumber() << " has type "
               << (value.empty() ? Type() : Type(value.front().type))
               << ", expected " << argument.getType();
      values[argument] = value;
    }
    countUses(body);
    for (Operation &op : body.without_terminator())
      if (failed(execute(&op)))
        return failure();
    std::vector<RankTensors> results;
    for (Value operand : body.getTerminator()->getOperands())
      results.push_back(values[operand]);
    return results;
  }

private:
  /// Values are dropped after their last use, so that memory stays that of
  /// the live ones.
  void countUses(Block &body) {
    for (Operation &op : body)
      for (Value operand : op.getOperands())
        ++uses[operand];
  }

  LogicalResult execute(Operation *op) {
    SmallVector<const RankTensors *> operands;
    for (Value operand : op->getOperands())
      operands.push_back(&values[operand]);
    std::vector<RankTensors> results;
    for (Type type : op->getResultTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (!tensor)
        return op->emitOpError("has a result of type ")
               << type << ", which the interpreter does not know";
      results.emplace_back(ranks, Tensor(tensor));
    }
    if (failed(dispatch(op, operands, results)))
      return failure();
    for (auto [value, result] : llvm::zip(op->getResults(), results))
      if (uses[value])
        values[value] = std::move(result);
    for (Value operand : op->getOperands())
      if (--uses[operand] == 0)
        values.erase(operand);
    return success();
  }

  LogicalResult dispatch(Operation *op, ArrayRef<const RankTensors *> operands,
                         MutableArrayRef<RankTensors> results) {
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      if (!dense)
        return op->emitOpError("is not a dense tensor");
      results[0].assign(ranks, tensorFromAttr(dense));
      return success();
    }
    if (auto call = dyn_cast<func::CallOp>(op))
      return executeCall(call, operands, results);
    if (isa<dist::DistDialect>(op->getDialect())) {
      if (!mesh && !isa<dist::ConstrainOp>(op))
        return op->emitOpError("needs a mesh to be interpreted");
      return interpretRankOp(op, mesh, operands, results);
    }
    auto evaluable = dyn_cast<EvaluableInterface>(op);
    if (!evaluable)
      return op->emitOpError("has no reference semantics");
    for (int64_t rank = 0; rank < ranks; ++rank) {
      SmallVector<const Tensor *> in;
      for (const RankTensors *operand : operands)
        in.push_back(&(*operand)[rank]);
      SmallVector<Tensor> out;
      for (RankTensors &result : results)
        out.push_back(std::move(result[rank]));
      if (failed(evaluable.evaluate(in, out)))
        return failure();
      for (auto [result, tensor] : llvm::zip(results, out))
        result[rank] = std::move(tensor);
    }
    return success();
  }

  LogicalResult executeCall(func::CallOp call,
                            ArrayRef<const RankTensors *> operands,
                            MutableArrayRef<RankTensors> results) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    if (!callee)
      return call.emitOpError("calls an unknown function");
    std::vector<RankTensors> arguments;
    for (const RankTensors *operand : operands)
      arguments.push_back(*operand);
    auto returned = Machine(mesh, ranks).run(callee, arguments);
    if (failed(returned))
      return failure();
    for (auto [result, value] : llvm::zip(results, *returned))
      result = std::move(value);
    return success();
  }

  dist::MeshAttr mesh;
  int64_t ranks;
  DenseMap<Value, RankTensors> values;
  DenseMap<Value, int64_t> uses;
};

} // namespace

FailureOr<std::vector<Tensor>> cleave::interpret(func::FuncOp func,
                                                 ArrayRef<Tensor> arguments) {
  std::vector<RankTensors> wrapped;
  for (const Tensor &argument : arguments)
    wrapped.push_back({argument});
  auto results = Machine({}, 1).run(func, wrapped);
  if (failed(results))
    return failure();
  std::vector<Tensor> tensors;
  for (RankTensors &result : *results)
    tensors.push_back(std::move(result[0]));
  return tensors;
}

FailureOr<std::vector<RankTensors>>
cleave::interpretRanks(func::FuncOp func, dist::MeshAttr mesh,
                       ArrayRef<RankTensors> arguments) {
  int64_t ranks = 1;
  for (dist::MeshAxisAttr axis : mesh.getAxes())
    ranks *= axis.getSize();
  return Machine(mesh, ranks).run(func, arguments);
}
