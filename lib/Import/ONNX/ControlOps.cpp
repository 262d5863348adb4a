// Control flow: If, Loop and Scan. A loop becomes an nn.scan, whose number of
// iterations must be known. Of an If, only the branch that is taken is lowered,
// so its condition must be known as well.

#include "Families.h"

#include <onnx/onnx_pb.h>

#include "mlir/IR/Builders.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

namespace {

Error expectPorts(StringRef graph, StringRef what, size_t have, size_t want) {
  if (have == want)
    return Error::success();
  return reason("its graph '" + graph + "' has " + Twine(have) + " " + what +
                ", expected " + Twine(want));
}

//===----------------------------------------------------------------------===//
// If
//===----------------------------------------------------------------------===//

Error lowerIf(Node &node) {
  std::optional<int64_t> condition = node.input(0).splatInt();
  if (!condition)
    return reason("its condition is computed when the model runs, expected one "
                  "that is known once dimensions are bound: bind the inputs "
                  "that it depends on (--bind NAME=VALUE), or export the model "
                  "without the branch");
  StringRef name = *condition ? "then_branch" : "else_branch";
  const Subgraph *graph = node.subgraph(name);
  if (!graph)
    return reason("it has no graph '" + name + "'");
  if (Error error = expectPorts(name, "inputs", graph->inputs.size(), 0))
    return error;
  if (Error error = expectPorts(name, "outputs", graph->outputs.size(),
                                node.numOutputs()))
    return error;
  CLEAVE_TRY(results, node.lowerGraph(*graph, {}));
  for (auto [index, result] : llvm::enumerate(results))
    node.set(index, result);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// A loop whose body is a graph. The graph's inputs are `known`, then the
/// carried values, then the slices; its outputs are a number of known values
/// (the condition of a Loop), then the new carried values, then values to
/// stack.
struct LoopSpec {
  const Subgraph *body;
  int64_t trips;
  SmallVector<Value> inits, slices;
  bool isReverse = false;
  /// Returns the operands of the graph's inputs, given the arguments of the
  /// loop's region.
  std::function<SmallVector<Operand>(ArrayRef<Value> carried,
                                     ArrayRef<Value> slices)>
      arguments;
  /// Checks the outputs of the graph, and drops those that are not values of
  /// the loop.
  std::function<Error(SmallVector<Operand> &)> checkOutputs;
};

/// Checks that an iteration yields a carried value with the type with which it
/// began.
Error checkCarried(size_t index, Type had, Type now) {
  if (had == now)
    return Error::success();
  auto before = cast<RankedTensorType>(had),
       after = cast<RankedTensorType>(now);
  if (before.getShape() == after.getShape())
    return reason("its carried value " + Twine(index) +
                  " changes its element type in an iteration");
  return reason("its carried value " + Twine(index) + " has shape " +
                spell(before.getShape()) + " before an iteration and " +
                spell(after.getShape()) +
                " after it, expected one shape in all iterations");
}

Expected<nn::ScanOp> emitLoop(Node &node, const LoopSpec &spec) {
  auto block = std::make_unique<Block>();
  SmallVector<Value> carried, elements;
  for (Value init : spec.inits)
    carried.push_back(block->addArgument(init.getType(), node.loc));
  for (Value slice : spec.slices) {
    auto type = cast<RankedTensorType>(slice.getType());
    elements.push_back(
        block->addArgument(type.clone(type.getShape().drop_front()), node.loc));
  }
  SmallVector<Value> yielded;
  {
    OpBuilder::InsertionGuard guard(node.builder);
    node.builder.setInsertionPointToEnd(block.get());
    CLEAVE_TRY(outputs,
               node.lowerGraph(*spec.body, spec.arguments(carried, elements)));
    if (Error error = spec.checkOutputs(outputs))
      return std::move(error);
    for (const Operand &output : outputs) {
      CLEAVE_TRY(value, node.value(output));
      yielded.push_back(value);
    }
    nn::YieldOp::create(node.builder, node.loc, yielded);
  }
  for (auto [index, init] : llvm::enumerate(spec.inits))
    if (Error error =
            checkCarried(index, init.getType(), yielded[index].getType()))
      return std::move(error);
  SmallVector<Type> stacked;
  for (Value value : ArrayRef(yielded).drop_front(spec.inits.size()))
    stacked.push_back(value.getType());
  auto scan =
      nn::ScanOp::create(node.builder, node.loc, spec.trips, spec.inits,
                         spec.slices, ValueRange(), stacked, spec.isReverse);
  for (auto [from, to] :
       llvm::zip_equal(block->getArguments(), scan.getBody()->getArguments()))
    from.replaceAllUsesWith(to);
  scan.getBody()->getOperations().splice(scan.getBody()->end(),
                                         block->getOperations());
  scan.captureOutsideValues();
  return scan;
}

/// Converts the values with which a loop begins.
Expected<SmallVector<Value>> valuesOf(Node &node, size_t first, size_t count) {
  SmallVector<Value> values;
  for (size_t index = first; index < first + count; ++index) {
    if (!node.has(index))
      return reason("its input " + Twine(index) + " is absent");
    CLEAVE_TRY(value, node.value(node.input(index)));
    values.push_back(value);
  }
  return values;
}

//===----------------------------------------------------------------------===//
// Loop
//===----------------------------------------------------------------------===//

/// More iterations are taken for a mistake, such as the largest integer in a
/// loop that is meant to end by its condition.
constexpr int64_t kMaxTrips = int64_t(1) << 24;

/// Returns whether a node of the graph reads a value.
bool reads(const Subgraph &graph, const std::string &value) {
  bool found = llvm::is_contained(graph.outputs, value);
  forEachNode(graph.nodes, [&](const FlatNode &node) {
    found |= llvm::is_contained(node.proto->input(), value);
  });
  return found;
}

Error lowerLoop(Node &node) {
  const Subgraph *body = node.subgraph("body");
  if (!body)
    return reason("it has no graph 'body'");
  size_t carried = node.flat.formalInputs - 2;
  if (Error error =
          expectPorts("body", "inputs", body->inputs.size(), carried + 2))
    return error;
  if (Error error = expectPorts("body", "outputs", body->outputs.size(),
                                node.numOutputs() + 1))
    return error;
  std::optional<int64_t> trips;
  if (node.has(0))
    trips = node.input(0).splatInt();
  if (!trips)
    return reason(node.has(0)
                      ? Twine("its trip count is computed when the model runs, "
                              "expected one that is known once dimensions are "
                              "bound")
                      : Twine("it has no trip count, expected a known one"));
  if (*trips < 1 || *trips > kMaxTrips)
    return reason(
        "its trip count is " + Twine(*trips) + ", expected " +
        (*trips < 1 ? Twine("at least 1") : "at most " + Twine(kMaxTrips)));
  if (node.has(1) && node.input(1).splatInt() != 1)
    return reason("its condition is computed when the model runs or is false, "
                  "expected one that is known to be true");
  LoopSpec spec{body, *trips};
  CLEAVE_TRY(inits, valuesOf(node, 2, carried));
  spec.inits = inits;
  auto counted = RankedTensorType::get({*trips}, node.builder.getI64Type());
  if (reads(*body, body->inputs[0]))
    spec.slices = {nn::IotaOp::create(node.builder, node.loc, counted, 0)};
  spec.arguments = [](ArrayRef<Value> carried, ArrayRef<Value> slices) {
    SmallVector<Operand> arguments = {
        slices.empty() ? Operand() : Operand(slices[0]),
        Operand(HostTensor::splat(Element::Bool, {}, 1))};
    arguments.append(carried.begin(), carried.end());
    return arguments;
  };
  spec.checkOutputs = [](SmallVector<Operand> &outputs) -> Error {
    if (outputs[0].splatInt() != 1)
      return reason("its body computes whether to go on when the model runs, "
                    "expected a condition that is known to be true: a loop "
                    "must have a fixed number of iterations");
    outputs.erase(outputs.begin());
    return Error::success();
  };
  CLEAVE_TRY(scan, emitLoop(node, spec));
  for (auto [index, result] : llvm::enumerate(scan.getResults()))
    node.set(index, Operand(result));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Scan
//===----------------------------------------------------------------------===//

/// Returns an attribute with a number for each of `count` tensors; 0 for each
/// if the node does not have the attribute.
Expected<Shape> listOf(Node &node, StringRef name, size_t count) {
  std::optional<Shape> list = node.intsAttr(name);
  if (!list)
    return Shape(count, 0);
  if (list->size() != count)
    return reason("its attribute " + name + " has " + Twine(list->size()) +
                  " numbers, expected " + Twine(count));
  return *list;
}

/// Moves a dimension to another place.
Expected<Operand> moveDim(Node &node, const Operand &operand, int64_t from,
                          int64_t to) {
  if (from == to)
    return operand;
  Shape permutation;
  for (int64_t dim = 0; dim < operand.rank(); ++dim)
    if (dim != from)
      permutation.push_back(dim);
  permutation.insert(permutation.begin() + to, from);
  return node.transpose(operand, permutation);
}

/// Returns the value with the order along dimension 0 reversed.
Value reversed(Node &node, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> order(llvm::reverse(llvm::seq(type.getDimSize(0))));
  auto indices =
      RankedTensorType::get({type.getDimSize(0)}, node.builder.getI64Type());
  Value at = arith::ConstantOp::create(
      node.builder, node.loc,
      DenseElementsAttr::get(indices, ArrayRef<int64_t>(order)));
  return nn::GatherOp::create(node.builder, node.loc, value, at, 0);
}

Error lowerScan(Node &node) {
  const Subgraph *body = node.subgraph("body");
  if (!body)
    return reason("it has no graph 'body'");
  size_t formal = node.flat.formalInputs;
  size_t count = node.intAttr("num_scan_inputs", 0);
  if (count < 1 || count > formal)
    return reason("its attribute num_scan_inputs is " + Twine(count) +
                  ", expected 1 to " + Twine(formal));
  size_t carried = formal - count, stacked = node.numOutputs() - carried;
  if (node.numOutputs() < carried)
    return reason("it has " + Twine(node.numOutputs()) +
                  " outputs, expected at least " + Twine(carried));
  if (Error error = expectPorts("body", "inputs", body->inputs.size(), formal))
    return error;
  if (Error error = expectPorts("body", "outputs", body->outputs.size(),
                                node.numOutputs()))
    return error;
  CLEAVE_TRY(axes, listOf(node, "scan_input_axes", count));
  CLEAVE_TRY(directions, listOf(node, "scan_input_directions", count));
  CLEAVE_TRY(outAxes, listOf(node, "scan_output_axes", stacked));
  CLEAVE_TRY(outDirections, listOf(node, "scan_output_directions", stacked));
  LoopSpec spec{body, 0};
  spec.isReverse = directions[0] != 0;
  CLEAVE_TRY(inits, valuesOf(node, 0, carried));
  spec.inits = inits;
  for (size_t index = 0; index < count; ++index) {
    const Operand &input = node.input(carried + index);
    CLEAVE_TRY(axis, Node::axisOf(axes[index], input.rank()));
    CLEAVE_TRY(moved, moveDim(node, input, axis, 0));
    CLEAVE_TRY(value, node.value(moved));
    int64_t size = moved.shape[0];
    if (index == 0)
      spec.trips = size;
    if (size != spec.trips)
      return reason("its scanned inputs have " + Twine(spec.trips) + " and " +
                    Twine(size) +
                    " elements along the scanned dimension, "
                    "expected one number");
    spec.slices.push_back((directions[index] != 0) == spec.isReverse
                              ? value
                              : reversed(node, value));
  }
  if (spec.trips < 1)
    return reason("its trip count is 0, expected at least 1");
  spec.arguments = [](ArrayRef<Value> carried, ArrayRef<Value> slices) {
    SmallVector<Operand> arguments(carried.begin(), carried.end());
    arguments.append(slices.begin(), slices.end());
    return arguments;
  };
  spec.checkOutputs = [](SmallVector<Operand> &) { return Error::success(); };
  CLEAVE_TRY(scan, emitLoop(node, spec));
  for (auto [index, result] : llvm::enumerate(scan.getFinals()))
    node.set(index, Operand(result));
  for (auto [index, result] : llvm::enumerate(scan.getStacked())) {
    Value value = (outDirections[index] != 0) == spec.isReverse
                      ? Value(result)
                      : reversed(node, result);
    Operand operand(value);
    CLEAVE_TRY(axis, Node::axisOf(outAxes[index], operand.rank()));
    CLEAVE_TRY(moved, moveDim(node, operand, 0, axis));
    node.set(carried + index, moved);
  }
  return Error::success();
}

} // namespace

void addControlOps(std::vector<OnnxOp> &table) {
  auto op = [&](StringRef name, StringRef becomes, LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, 2, becomes, lower});
  };
  op("If", "", lowerIf);
  op("Loop", "nn.scan", lowerLoop);
  op("Scan", "nn.scan", lowerScan);
}

} // namespace cleave::importer
