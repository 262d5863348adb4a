// Executes the operations of a function.

#include "cleave/Interpreter/Interpreter.h"
#include "RankOps.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace cleave;

void cleave::poison(Tensor &tensor) {
  std::fill(tensor.floats.begin(), tensor.floats.end(),
            std::numeric_limits<double>::quiet_NaN());
  // Integer padding alternates between large and small values, so that reading
  // it changes a maximum as well as a minimum.
  for (auto [i, x] : llvm::enumerate(tensor.ints))
    x = i % 2 == 0 ? int64_t(1) << 40 : -(int64_t(1) << 40);
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

/// The values of one function on all ranks.
class Machine {
public:
  /// `outer` is the machine of the surrounding code, in which a region finds
  /// the values that it reads from outside.
  Machine(dist::MeshAttr mesh, int64_t ranks, Observer observe = nullptr,
          Machine *outer = nullptr)
      : mesh(mesh), ranks(ranks), observe(observe), outer(outer) {}

  FailureOr<std::vector<RankTensors>> run(func::FuncOp func,
                                          ArrayRef<RankTensors> arguments) {
    if (func.isDeclaration())
      return func.emitError("@")
             << func.getName() << " is only declared and cannot be interpreted";
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
    return runBlock(body);
  }

  /// Runs a block; the block's arguments already have their values.
  FailureOr<std::vector<RankTensors>> runBlock(Block &body) {
    countUses(body);
    if (observe)
      for (Value argument : body.getArguments())
        observe(argument, values[argument].front());
    for (Operation &op : body.without_terminator())
      if (failed(execute(&op)))
        return failure();
    std::vector<RankTensors> results;
    for (Value operand : body.getTerminator()->getOperands())
      results.push_back(lookup(operand));
    return results;
  }

private:
  const RankTensors &lookup(Value value) {
    auto it = values.find(value);
    return it == values.end() && outer ? outer->lookup(value) : it->second;
  }

  /// Returns the values that an operation reads: its operands, and values from
  /// outside that its regions read.
  static SmallVector<Value> readBy(Operation &op) {
    SmallVector<Value> read(op.getOperands());
    llvm::SetVector<Value> captured;
    for (Region &region : op.getRegions())
      getUsedValuesDefinedAbove(region, captured);
    llvm::append_range(read, captured);
    return read;
  }

  /// Counts the uses of each value, so that a value can be dropped after its
  /// last use and memory holds only live values.
  void countUses(Block &body) {
    for (Operation &op : body)
      for (Value operand : readBy(op))
        ++uses[operand];
  }

  LogicalResult execute(Operation *op) {
    SmallVector<const RankTensors *> operands;
    for (Value operand : op->getOperands())
      operands.push_back(&lookup(operand));
    std::vector<RankTensors> results;
    for (Type type : op->getResultTypes()) {
      // Scalars are represented as tensors of rank 0.
      auto tensor = type.isIntOrIndexOrFloat()
                        ? RankedTensorType::get({}, type)
                        : dyn_cast<RankedTensorType>(type);
      if (!tensor)
        return op->emitOpError("has a result of type ")
               << type << ", which the interpreter does not know";
      results.emplace_back(ranks, Tensor(tensor));
    }
    if (failed(dispatch(op, operands, results)))
      return failure();
    for (auto [value, result] : llvm::zip(op->getResults(), results)) {
      if (observe)
        observe(value, result.front());
      if (uses[value])
        values[value] = std::move(result);
    }
    for (Value operand : readBy(*op))
      if (--uses[operand] == 0)
        values.erase(operand);
    return success();
  }

  /// Executes a loop. All ranks run the same number of iterations.
  LogicalResult executeLoop(scf::ForOp loop,
                            ArrayRef<const RankTensors *> operands,
                            MutableArrayRef<RankTensors> results) {
    for (const RankTensors *bound : operands.take_front(3))
      for (const Tensor &tensor : *bound)
        if (tensor.ints[0] != bound->front().ints[0])
          return loop.emitOpError("has bounds that differ between ranks");
    int64_t from = operands[0]->front().ints[0],
            to = operands[1]->front().ints[0],
            step = operands[2]->front().ints[0];
    if (step <= 0)
      return loop.emitOpError("has step ")
             << step << ", expected a positive one";
    std::vector<RankTensors> carried;
    for (const RankTensors *init : operands.drop_front(3))
      carried.push_back(*init);
    for (int64_t i = from; i < to; i += step) {
      Machine body(mesh, ranks, observe, this);
      Tensor index(RankedTensorType::get({}, loop.getInductionVar().getType()));
      index.ints[0] = i;
      body.values[loop.getInductionVar()].assign(ranks, index);
      for (auto [argument, value] :
           llvm::zip_equal(loop.getRegionIterArgs(), carried))
        body.values[argument] = std::move(value);
      auto yielded = body.runBlock(*loop.getBody());
      if (failed(yielded))
        return failure();
      carried = std::move(*yielded);
    }
    for (auto [result, value] : llvm::zip_equal(results, carried))
      result = std::move(value);
    return success();
  }

  /// Executes a scan. Its region reads nothing from outside.
  LogicalResult executeScan(nn::ScanOp scan,
                            ArrayRef<const RankTensors *> operands,
                            MutableArrayRef<RankTensors> results) {
    size_t inits = scan.getInits().size();
    std::vector<RankTensors> carried;
    for (const RankTensors *init : operands.take_front(inits))
      carried.push_back(*init);
    for (int64_t trip = 0; trip < int64_t(scan.getTrips()); ++trip) {
      int64_t at = scan.getReverse() ? scan.getTrips() - 1 - trip : trip;
      Machine body(mesh, ranks, observe);
      for (auto [index, argument] :
           llvm::enumerate(scan.getBody()->getArguments())) {
        RankTensors &value = body.values[argument];
        if (index < inits)
          value = std::move(carried[index]);
        else if (index < inits + scan.getSlices().size())
          for (const Tensor &whole : *operands[index])
            value.push_back(elementOf(
                whole, cast<RankedTensorType>(argument.getType()), at));
        else
          value = *operands[index];
      }
      auto yielded = body.runBlock(*scan.getBody());
      if (failed(yielded))
        return failure();
      for (auto [index, value] : llvm::enumerate(*yielded))
        if (index >= inits)
          for (auto [whole, element] : llvm::zip_equal(results[index], value))
            setElement(whole, element, at);
      yielded->resize(inits);
      carried = std::move(*yielded);
    }
    for (auto [result, value] : llvm::zip(results, carried))
      result = std::move(value);
    return success();
  }

  /// Returns the element `at` of a tensor along dimension 0.
  static Tensor elementOf(const Tensor &whole, RankedTensorType type,
                          int64_t at) {
    Tensor element(type);
    int64_t size = element.size();
    if (whole.isFloat())
      std::copy_n(whole.floats.begin() + at * size, size,
                  element.floats.begin());
    else
      std::copy_n(whole.ints.begin() + at * size, size, element.ints.begin());
    return element;
  }

  static void setElement(Tensor &whole, const Tensor &element, int64_t at) {
    llvm::copy(element.floats, whole.floats.begin() + at * element.size());
    llvm::copy(element.ints, whole.ints.begin() + at * element.size());
  }

  /// If the ranks' conditions differ, both branches run and each rank keeps the
  /// results of its own branch.
  LogicalResult executeBranch(scf::IfOp branch, const RankTensors &condition,
                              MutableArrayRef<RankTensors> results) {
    for (bool side : {true, false}) {
      Region &region = side ? branch.getThenRegion() : branch.getElseRegion();
      auto takes = [&](const Tensor &tensor) {
        return (tensor.ints[0] != 0) == side;
      };
      if (region.empty() || llvm::none_of(condition, takes))
        continue;
      Machine body(mesh, ranks, observe, this);
      auto yielded = body.runBlock(region.front());
      if (failed(yielded))
        return failure();
      for (auto [result, value] : llvm::zip_equal(results, *yielded))
        for (int64_t rank = 0; rank < ranks; ++rank)
          if (takes(condition[rank]))
            result[rank] = std::move(value[rank]);
    }
    return success();
  }

  LogicalResult dispatch(Operation *op, ArrayRef<const RankTensors *> operands,
                         MutableArrayRef<RankTensors> results) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return executeLoop(loop, operands, results);
    if (auto scan = dyn_cast<nn::ScanOp>(op))
      return executeScan(scan, operands, results);
    if (auto branch = dyn_cast<scf::IfOp>(op))
      return executeBranch(branch, *operands[0], results);
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      if (!extract.getIndices().empty())
        return op->emitOpError("with indices has no reference semantics");
      for (auto [result, tensor] : llvm::zip_equal(results[0], *operands[0])) {
        result.floats = tensor.floats;
        result.ints = tensor.ints;
      }
      return success();
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      if (auto scalar = dyn_cast<IntegerAttr>(constant.getValue())) {
        bool isBool = scalar.getType().isInteger(1);
        for (Tensor &tensor : results[0])
          tensor.ints[0] =
              isBool ? scalar.getValue().getZExtValue() : scalar.getInt();
        return success();
      }
      if (auto scalar = dyn_cast<FloatAttr>(constant.getValue())) {
        for (Tensor &tensor : results[0])
          tensor.floats[0] = scalar.getValueAsDouble();
        return success();
      }
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
  Observer observe;
  DenseMap<Value, RankTensors> values;
  DenseMap<Value, int64_t> uses;
  Machine *outer;
};

} // namespace

bool cleave::hasReferenceSemantics(Operation *op) {
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return extract.getIndices().empty();
  return isa<ModuleOp, func::FuncOp, func::CallOp, scf::ForOp, scf::IfOp,
             nn::ScanOp, arith::ConstantOp, EvaluableInterface>(op) ||
         isa<dist::DistDialect>(op->getDialect()) ||
         op->hasTrait<OpTrait::IsTerminator>();
}

FailureOr<std::vector<Tensor>> cleave::interpret(func::FuncOp func,
                                                 ArrayRef<Tensor> arguments,
                                                 Observer observe) {
  std::vector<RankTensors> wrapped;
  for (const Tensor &argument : arguments)
    wrapped.push_back({argument});
  auto results = Machine({}, 1, observe).run(func, wrapped);
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
