// Recurrent layers: LSTM, GRU and RNN become one nn.scan for each direction.
//
// The products of the inputs with the weights do not depend on the state, so
// they are computed for all steps before the loop. Only the products of the
// state are computed inside of the loop. Names as in the operator
// specification: T steps, B samples, D directions, H features of the state, and
// G gates (LSTM 4, GRU 3, RNN 1).

#include "Recurrent.h"

#include <onnx/onnx_pb.h>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// Reads the names and parameters of the activation functions for all
/// directions. If the node names no functions, each direction has the functions
/// `otherwise`.
Expected<std::vector<Activation>> activationsOf(Node &node, int64_t directions,
                                                ArrayRef<StringRef> otherwise) {
  std::vector<Activation> found;
  if (const ::onnx::AttributeProto *list = node.attribute("activations"))
    for (const std::string &name : list->strings())
      found.push_back({name});
  if (found.empty())
    for (int64_t direction = 0; direction < directions; ++direction)
      for (StringRef name : otherwise)
        found.push_back({name.str()});
  if (found.size() != otherwise.size() * directions)
    return reason("has " + Twine(found.size()) + " activations, expected " +
                  Twine(otherwise.size() * directions) + " (" +
                  Twine(otherwise.size()) + " for each direction)");
  auto numbers = [&](StringRef attribute) -> ArrayRef<float> {
    const ::onnx::AttributeProto *list = node.attribute(attribute);
    return list ? ArrayRef(list->floats().data(), list->floats_size())
                : ArrayRef<float>();
  };
  // The attributes activation_alpha and activation_beta have entries only for
  // those activation functions that have this parameter.
  ArrayRef<float> alphas = numbers("activation_alpha"),
                  betas = numbers("activation_beta");
  for (Activation &function : found) {
    const ActivationRule *rule = ruleOf(function.name);
    if (!rule)
      return reason("has activation '" + Twine(function.name) +
                    "', expected one of " + activationNames());
    function.alpha = rule->alpha.value_or(0);
    function.beta = rule->beta.value_or(0);
    auto take = [](ArrayRef<float> &list, bool has, double &into) {
      if (has && !list.empty()) {
        into = list.front();
        list = list.drop_front();
      }
    };
    take(alphas, rule->alpha.has_value(), function.alpha);
    take(betas, rule->beta.has_value(), function.beta);
  }
  return found;
}

/// The attributes and operands of a recurrent layer, for all directions. The
/// first dimension of the operands is T, the time steps.
struct Layer {
  int64_t steps, samples, directions, hidden, gates;
  bool isReverse = false; // of the only direction
  bool samplesFirst = false;
  Operand input; // [T, B, features]
  std::vector<Activation> activations;
  double clip = 0;
  Value within; // [T, B], true before the end of a sequence; null if all are

  bool reverse(int64_t direction) const { return isReverse || direction == 1; }
};

Error badShape(StringRef what, const Operand &have, ArrayRef<int64_t> want) {
  return reason(Twine(what) + " has shape " + spell(have.shape) +
                ", expected " + spell(want));
}

Error expectShape(Node &node, size_t index, StringRef what,
                  ArrayRef<int64_t> want) {
  if (!node.has(index) || node.input(index).shape == Shape(want))
    return Error::success();
  return badShape(what, node.input(index), want);
}

/// Returns the mask of the steps before the end of each sequence.
Expected<Value> stepsWithin(Node &node, const Layer &layer) {
  const Operand &lengths = node.input(4);
  if (lengths.host)
    for (int64_t sample = 0; sample < layer.samples; ++sample)
      if (int64_t length = lengths.host->intAt(sample);
          length < 0 || length > layer.steps)
        return reason("sequence " + Twine(sample) + " has length " +
                      Twine(length) + " (sequence_lens), expected 0 to " +
                      Twine(layer.steps) + ", the steps of the input");
  if (std::optional<int64_t> all = lengths.splatInt(); all == layer.steps)
    return Value();
  CLEAVE_TRY(value, node.value(lengths));
  OpBuilder &b = node.builder;
  auto type = cast<RankedTensorType>(value.getType());
  if (!lengths.host)
    value = nn::CheckIndexOp::create(
        b,
        NameLoc::get(b.getStringAttr("sequence lengths, which are indices "
                                     "into the steps and their end"),
                     node.loc),
        value, layer.steps + 1);
  auto wide = type.clone({layer.steps, layer.samples});
  Value step = nn::IotaOp::create(b, node.loc, wide, 0);
  Value ends =
      nn::BroadcastOp::create(b, node.loc, wide, value, ArrayRef<int64_t>{1});
  return arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::slt, step,
                               ends)
      .getResult();
}

Expected<Layer> readLayer(Node &node, int64_t gates,
                          ArrayRef<StringRef> activations) {
  for (size_t index : {0, 1, 2})
    if (!node.has(index) || node.input(index).rank() != 3)
      return reason("input " + Twine(index) + " has shape " +
                    spell(node.input(index).shape) +
                    ", expected three dimensions");
  Layer layer;
  layer.gates = gates;
  layer.samplesFirst = node.intAttr("layout", 0) != 0;
  layer.input = node.input(0);
  if (!isFloat(layer.input.type))
    return reason("its input has type " + nameOf(layer.input.type) +
                  ", expected floats");
  if (layer.samplesFirst) {
    CLEAVE_TRY(moved, node.transpose(layer.input, {1, 0, 2}));
    layer.input = moved;
  }
  layer.steps = layer.input.shape[0];
  layer.samples = layer.input.shape[1];
  if (layer.steps < 1)
    return reason("its input has " + Twine(layer.steps) +
                  " steps, expected at least 1");
  std::string direction = node.stringAttr("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional")
    return reason("direction is '" + Twine(direction) +
                  "', expected forward, reverse or bidirectional");
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.isReverse = direction == "reverse";
  layer.hidden = node.input(2).shape[2];
  int64_t rows = gates * layer.hidden;
  if (Error error = expectShape(node, 1, "W",
                                {layer.directions, rows, layer.input.shape[2]}))
    return error;
  if (Error error =
          expectShape(node, 2, "R", {layer.directions, rows, layer.hidden}))
    return error;
  if (Error error = expectShape(node, 3, "B", {layer.directions, 2 * rows}))
    return error;
  if (Error error = expectShape(node, 4, "sequence_lens", {layer.samples}))
    return error;
  CLEAVE_TRY(functions, activationsOf(node, layer.directions, activations));
  layer.activations = functions;
  layer.clip = node.floatAttr("clip", 0);
  if (node.has(4)) {
    CLEAVE_TRY(within, stepsWithin(node, layer));
    layer.within = within;
  }
  return layer;
}

/// Returns the part of an operand of shape [D, G * H, ...] for one direction,
/// from gate `first` on, as [gates, H, ...].
Expected<Value> gatesOf(Node &node, const Operand &operand, int64_t direction,
                        const Layer &layer, int64_t first, int64_t gates) {
  Shape offsets(operand.rank()), sizes = operand.shape,
                                 strides(operand.rank(), 1);
  offsets[0] = direction;
  offsets[1] = first * layer.hidden;
  sizes[0] = 1;
  sizes[1] = gates * layer.hidden;
  CLEAVE_TRY(part, node.slice(operand, offsets, sizes, strides));
  Shape shape = {gates, layer.hidden};
  shape.append(sizes.begin() + 2, sizes.end());
  CLEAVE_TRY(shaped, node.reshape(part, shape));
  return node.value(shaped);
}

/// Returns the initial state [B, H] of one direction: that of input `index`, or
/// zeros.
Expected<Value> initialState(Node &node, size_t index, int64_t direction,
                             const Layer &layer) {
  if (!node.has(index))
    return node.value(
        node.splat(layer.input.type, {layer.samples, layer.hidden}, 0));
  Operand state = node.input(index);
  if (layer.samplesFirst && state.rank() == 3) {
    CLEAVE_TRY(moved, node.transpose(state, {1, 0, 2}));
    state = moved;
  }
  Shape want = {layer.directions, layer.samples, layer.hidden};
  if (state.shape != want) {
    std::string wrong =
        llvm::toString(badShape("the initial state", state, want));
    bool isProjected = state.rank() == 3 && state.shape[2] > layer.hidden;
    return reason(wrong +
                  (isProjected
                       ? "; the LSTM may have a projection (proj_size), which "
                         "ONNX's LSTM has not; compute it by a Linear after an "
                         "LSTM without proj_size"
                       : ""));
  }
  CLEAVE_TRY(own, node.slice(state, {direction, 0, 0},
                             {1, layer.samples, layer.hidden}, {1, 1, 1}));
  CLEAVE_TRY(flat, node.reshape(own, {layer.samples, layer.hidden}));
  return node.value(flat);
}

/// Returns the products of the inputs with the weights for all steps, [T, B, G,
/// H]. In ONNX, each gate has a bias for the input and a bias for the state.
/// Both are added to the products, except that the bias for the state is left
/// out for the last `apart` gates.
Expected<Value> projectInputs(Node &node, int64_t direction, const Layer &layer,
                              int64_t apart) {
  OpBuilder &b = node.builder;
  CLEAVE_TRY(input, node.value(layer.input));
  CLEAVE_TRY(weights,
             gatesOf(node, node.input(1), direction, layer, 0, layer.gates));
  Value all =
      nn::EinsumOp::create(b, node.loc, "tbi,ghi->tbgh", input, weights);
  if (!node.has(3))
    return all;
  CLEAVE_TRY(bias,
             gatesOf(node, node.input(3), direction, layer, 0, layer.gates));
  CLEAVE_TRY(ofState, gatesOf(node, node.input(3), direction, layer,
                              layer.gates, layer.gates));
  TensorExpr e(b, node.loc);
  if (apart) {
    auto type = cast<RankedTensorType>(ofState.getType());
    int64_t kept = layer.gates - apart;
    Value part = nn::SliceOp::create(
        b, node.loc, ofState, ArrayRef<int64_t>{0, 0},
        ArrayRef<int64_t>{kept, layer.hidden}, ArrayRef<int64_t>{1, 1});
    ofState =
        nn::PadOp::create(b, node.loc, type, part, ArrayRef<int64_t>{0, 0},
                          ArrayRef<int64_t>{apart, 0}, llvm::APFloat(0.0));
  }
  Value sum = e.add(bias, ofState);
  return e.add(all,
               e.broadcast(sum, cast<RankedTensorType>(all.getType()), {2, 3}));
}

/// One direction of a layer: the loop, and its results.
struct Direction {
  Value outputs;             // [T, B, H]; null if not wanted
  SmallVector<Value> states; // [B, H] each, after the last step
};

/// Computes the new states of a step from the old ones.
using Step = llvm::function_ref<SmallVector<Value>(
    Cell &, ArrayRef<Value> states, Value projected, ArrayRef<Value> captured)>;

Direction runLoop(Node &node, const Layer &layer, int64_t direction,
                  ArrayRef<Value> states, Value projected,
                  ArrayRef<Value> captured, Step step) {
  SmallVector<Value> slices = {projected};
  if (layer.within)
    slices.push_back(layer.within);
  bool wantsOutputs = node.wants(0);
  SmallVector<Type> stacked;
  if (wantsOutputs)
    stacked.push_back(states[0].getType());
  auto scan =
      nn::ScanOp::create(node.builder, node.loc, layer.steps, states, slices,
                         captured, stacked, layer.reverse(direction));
  OpBuilder b = OpBuilder::atBlockEnd(scan.getBody());
  size_t each = layer.activations.size() / layer.directions;
  Cell cell(b, node.loc,
            ArrayRef(layer.activations).slice(direction * each, each),
            layer.clip, layer.hidden);
  SmallVector<Value> old(scan.getCarriedArguments());
  SmallVector<Value> yielded =
      step(cell, old, scan.getSliceArguments()[0],
           SmallVector<Value>(scan.getCaptureArguments()));
  Value output = yielded[0];
  if (layer.within) {
    // After the end of a sequence the states keep their values, and the outputs
    // are zeros.
    Value within = cell.broadcast(
        scan.getSliceArguments()[1],
        cast<RankedTensorType>(output.getType()).clone(b.getI1Type()), {0});
    for (auto [value, before] : llvm::zip_equal(yielded, old))
      value = cell.select(within, value, before);
    output = cell.select(within, output, cell.TensorExpr::splat(output, 0.0));
  }
  if (wantsOutputs)
    yielded.push_back(output);
  nn::YieldOp::create(b, node.loc, yielded);
  Direction done;
  done.states.assign(scan.getFinals().begin(), scan.getFinals().end());
  if (wantsOutputs)
    done.outputs = scan.getStacked()[0];
  return done;
}

/// Sets the results of a node: Y [T, D, B, H], then one state [D, B, H] for
/// each carried value. If samples are the first dimension (layout = 1), the
/// shapes are [B, T, D, H] and [B, D, H].
Error setResults(Node &node, const Layer &layer,
                 ArrayRef<Direction> directions) {
  auto joined = [&](llvm::function_ref<Value(const Direction &)> of,
                    ArrayRef<int64_t> shape, int64_t dim,
                    ArrayRef<int64_t> samplesFirst) -> Expected<Operand> {
    std::vector<Operand> parts;
    for (const Direction &direction : directions) {
      CLEAVE_TRY(part, node.reshape(Operand(of(direction)), shape));
      parts.push_back(part);
    }
    CLEAVE_TRY(all, node.concat(parts, dim));
    if (!layer.samplesFirst)
      return all;
    return node.transpose(all, samplesFirst);
  };
  if (node.wants(0)) {
    CLEAVE_TRY(outputs, joined([](const Direction &x) { return x.outputs; },
                               {layer.steps, 1, layer.samples, layer.hidden}, 1,
                               {2, 0, 1, 3}));
    node.set(0, outputs);
  }
  for (size_t state = 0; state < directions[0].states.size(); ++state) {
    if (!node.wants(1 + state))
      continue;
    CLEAVE_TRY(last, joined([&](const Direction &x) { return x.states[state]; },
                            {1, layer.samples, layer.hidden}, 0, {1, 0, 2}));
    node.set(1 + state, last);
  }
  return Error::success();
}

Error lowerLstm(Node &node) {
  CLEAVE_TRY(layer, readLayer(node, 4, {"Sigmoid", "Tanh", "Tanh"}));
  if (Error error =
          expectShape(node, 7, "P", {layer.directions, 3 * layer.hidden}))
    return error;
  bool couples = node.intAttr("input_forget", 0) != 0;
  std::vector<Direction> done;
  for (int64_t direction = 0; direction < layer.directions; ++direction) {
    CLEAVE_TRY(projected, projectInputs(node, direction, layer, 0));
    CLEAVE_TRY(recurrent, gatesOf(node, node.input(2), direction, layer, 0, 4));
    CLEAVE_TRY(h, initialState(node, 5, direction, layer));
    CLEAVE_TRY(c, initialState(node, 6, direction, layer));
    SmallVector<Value> captured = {recurrent};
    if (node.has(7)) {
      CLEAVE_TRY(peepholes,
                 gatesOf(node, node.input(7), direction, layer, 0, 3));
      captured.push_back(peepholes);
    }
    // The gates are input, output, forget and cell.
    auto step = [&](Cell &cell, ArrayRef<Value> states, Value x,
                    ArrayRef<Value> given) -> SmallVector<Value> {
      Value all = cell.add(x, cell.product(states[0], given[0]));
      auto gate = [&](int64_t index, Value state) {
        Value value = cell.gate(all, index);
        if (given.size() > 1 && index < 3)
          value = cell.add(value, cell.mul(state, cell.alongSamples(
                                                      given[1], index, state)));
        return cell.apply(0, value);
      };
      Value i = gate(0, states[1]);
      Value f = couples ? cell.sub(cell.TensorExpr::splat(i, 1.0), i)
                        : gate(2, states[1]);
      Value candidate = cell.apply(1, cell.gate(all, 3));
      Value c = cell.add(cell.mul(f, states[1]), cell.mul(i, candidate));
      Value o = gate(1, c);
      return {cell.mul(o, cell.apply(2, c, /*clips=*/false)), c};
    };
    done.push_back(
        runLoop(node, layer, direction, {h, c}, projected, captured, step));
  }
  return setResults(node, layer, done);
}

Error lowerGru(Node &node) {
  CLEAVE_TRY(layer, readLayer(node, 3, {"Sigmoid", "Tanh"}));
  bool linear = node.intAttr("linear_before_reset", 0) != 0;
  std::vector<Direction> done;
  for (int64_t direction = 0; direction < layer.directions; ++direction) {
    // With linear_before_reset, the reset gate scales the candidate's product
    // with the state and also the bias for the state. So this bias is added in
    // the loop.
    CLEAVE_TRY(projected, projectInputs(node, direction, layer, linear));
    CLEAVE_TRY(h, initialState(node, 5, direction, layer));
    SmallVector<Value> captured;
    CLEAVE_TRY(gates, gatesOf(node, node.input(2), direction, layer, 0,
                              linear ? 3 : 2));
    captured.push_back(gates);
    if (!linear) {
      CLEAVE_TRY(candidate,
                 gatesOf(node, node.input(2), direction, layer, 2, 1));
      captured.push_back(candidate);
    } else if (node.has(3)) {
      CLEAVE_TRY(bias, gatesOf(node, node.input(3), direction, layer, 5, 1));
      captured.push_back(bias);
    }
    // The gates are update, reset and candidate.
    auto step = [&](Cell &cell, ArrayRef<Value> states, Value x,
                    ArrayRef<Value> given) -> SmallVector<Value> {
      Value h = states[0], ofState = cell.product(h, given[0]);
      auto gate = [&](int64_t index) {
        return cell.apply(
            0, cell.add(cell.gate(x, index), cell.gate(ofState, index)));
      };
      Value z = gate(0), r = gate(1), candidate;
      if (linear) {
        candidate = cell.gate(ofState, 2);
        if (given.size() > 1)
          candidate =
              cell.add(candidate, cell.alongSamples(given[1], 0, candidate));
        candidate = cell.mul(r, candidate);
      } else {
        candidate = cell.gate(cell.product(cell.mul(r, h), given[1]), 0);
      }
      candidate = cell.apply(1, cell.add(cell.gate(x, 2), candidate));
      Value rest = cell.sub(cell.TensorExpr::splat(z, 1.0), z);
      return {cell.add(cell.mul(rest, candidate), cell.mul(z, h))};
    };
    done.push_back(
        runLoop(node, layer, direction, {h}, projected, captured, step));
  }
  return setResults(node, layer, done);
}

Error lowerRnn(Node &node) {
  CLEAVE_TRY(layer, readLayer(node, 1, {"Tanh"}));
  std::vector<Direction> done;
  for (int64_t direction = 0; direction < layer.directions; ++direction) {
    CLEAVE_TRY(projected, projectInputs(node, direction, layer, 0));
    CLEAVE_TRY(recurrent, gatesOf(node, node.input(2), direction, layer, 0, 1));
    CLEAVE_TRY(h, initialState(node, 5, direction, layer));
    auto step = [&](Cell &cell, ArrayRef<Value> states, Value x,
                    ArrayRef<Value> given) -> SmallVector<Value> {
      Value all = cell.add(x, cell.product(states[0], given[0]));
      return {cell.apply(0, cell.gate(all, 0))};
    };
    done.push_back(
        runLoop(node, layer, direction, {h}, projected, {recurrent}, step));
  }
  return setResults(node, layer, done);
}

} // namespace

void addRecurrentOps(std::vector<OnnxOp> &table) {
  auto op = [&](StringRef name, StringRef becomes, LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, 2, becomes, lower,
                     /*weightsFrom=*/1});
  };
  op("GRU", "nn.scan nn.einsum nn.sigmoid math.tanh", lowerGru);
  op("LSTM", "nn.scan nn.einsum nn.sigmoid math.tanh", lowerLstm);
  op("RNN", "nn.scan nn.einsum math.tanh", lowerRnn);
}

} // namespace cleave::importer
