// Lowers com.microsoft.MoE, which has a router, experts and their weighted sum
// in one operator. Its meaning was found by experiments with ONNX Runtime: a
// softmax over all experts gives the weights. The k largest are used; with
// normalize_routing_weights they are divided by their sum. The experts'
// matrices have shape [experts, out, in]. If there is a third matrix, the
// product with it multiplies the activation's result, as in SwiGLU.

#include "Families.h"

using namespace mlir;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

namespace {

enum Input {
  Rows,
  Scores,
  First,
  FirstBias,
  Second,
  SecondBias,
  Third,
  ThirdBias
};

class Layer {
public:
  explicit Layer(Node &node) : node(node) {}

  Error lower();

private:
  Error check();
  Expected<Value> dot(Value rows, Input matrices, Input bias);
  Expected<Value> activate(Value value);

  Node &node;
  Value ids;
  Shape slots; // [tokens, k]
};

Error Layer::check() {
  std::string activation = node.stringAttr("activation_type", "relu");
  if (activation != "relu" && activation != "silu" && activation != "identity")
    return reason("activation_type '" + activation +
                  "' is not supported; relu, silu and identity are");
  if (node.intAttr("use_sparse_mixer", 0))
    return reason("use_sparse_mixer is not supported");
  const Operand &rows = node.input(Rows), &scores = node.input(Scores);
  if (rows.rank() < 2 || scores.rank() != 2 || !node.has(First) ||
      !node.has(Second))
    return reason(
        "expected rows [..., hidden], scores [tokens, experts] and two "
        "tensors of matrices");
  int64_t hidden = rows.shape.back(), experts = scores.shape[1],
          inner =
              node.input(First).rank() == 3 ? node.input(First).shape[1] : 0,
          k = node.intAttr("k", 1);
  if (product(rows.shape) != scores.shape[0] * hidden)
    return reason("scores " + spell(scores.shape) + " do not fit rows " +
                  spell(rows.shape));
  if (k < 1 || k > experts)
    return reason("k is " + Twine(k) + ", but there are " + Twine(experts) +
                  " experts");
  Shape into = {experts, inner, hidden}, back = {experts, hidden, inner};
  for (auto [input, want] : {std::pair(First, into), std::pair(Second, back),
                             std::pair(Third, into)})
    if (node.has(input) && node.input(input).shape != want)
      return reason("input " + Twine(int(input)) + " has shape " +
                    spell(node.input(input).shape) + ", expected " +
                    spell(want) + ": [experts, out, in]");
  for (auto [input, want] : {std::pair(FirstBias, Shape{experts, inner}),
                             std::pair(SecondBias, Shape{experts, hidden}),
                             std::pair(ThirdBias, Shape{experts, inner})})
    if (node.has(input) && node.input(input).shape != want)
      return reason("input " + Twine(int(input)) + " has shape " +
                    spell(node.input(input).shape) + ", expected " +
                    spell(want));
  return Error::success();
}

Expected<Value> Layer::dot(Value rows, Input matrices, Input bias) {
  CLEAVE_TRY(stack, node.value(node.input(matrices)));
  auto type = cast<RankedTensorType>(rows.getType());
  Shape shape = slots;
  shape.push_back(node.input(matrices).shape[1]);
  Value result =
      nn::GroupedDotOp::create(node.builder, node.loc, type.clone(shape), rows,
                               stack, ids, /*transposed=*/true);
  if (!node.has(bias))
    return result;
  CLEAVE_TRY(biases, node.value(node.input(bias)));
  Value each = nn::GatherOp::create(node.builder, node.loc, biases, ids, 0);
  return arith::AddFOp::create(node.builder, node.loc, result, each)
      .getResult();
}

Expected<Value> Layer::activate(Value value) {
  std::string activation = node.stringAttr("activation_type", "relu");
  OpBuilder &b = node.builder;
  auto type = cast<RankedTensorType>(value.getType());
  if (activation == "relu")
    return arith::MaximumFOp::create(b, node.loc, value,
                                     nn::createSplat(b, node.loc, type, 0))
        .getResult();
  if (activation == "silu") {
    Value gate = nn::SigmoidOp::create(b, node.loc, type, value);
    return arith::MulFOp::create(b, node.loc, value, gate).getResult();
  }
  return value;
}

Error Layer::lower() {
  if (Error error = check())
    return error;
  OpBuilder &b = node.builder;
  const Operand &input = node.input(Rows);
  int64_t hidden = input.shape.back(), tokens = node.input(Scores).shape[0],
          k = node.intAttr("k", 1);
  slots = {tokens, k};
  CLEAVE_TRY(chances, softmax(node, node.input(Scores), 1));
  CLEAVE_TRY(scores, node.value(chances));
  auto type = cast<RankedTensorType>(scores.getType());
  auto top = nn::TopKOp::create(b, node.loc, type.clone(slots),
                                RankedTensorType::get(slots, b.getI64Type()),
                                scores, k);
  ids = top.getIndices();
  Operand weights(top.getValues());
  if (node.intAttr("normalize_routing_weights", 0)) {
    CLEAVE_TRY(sum, reduce(node, nn::Combiner::Sum, weights, {1}, true));
    CLEAVE_TRY(shares, divide(node, weights, sum));
    weights = shares;
  }
  CLEAVE_TRY(flat, node.reshape(input, {tokens, 1, hidden}));
  CLEAVE_TRY(rows, node.valueAs(flat, {tokens, k, hidden}));
  CLEAVE_TRY(first, dot(rows, First, FirstBias));
  CLEAVE_TRY(active, activate(first));
  Value inner = active;
  if (node.has(Third)) {
    CLEAVE_TRY(third, dot(rows, Third, ThirdBias));
    inner = arith::MulFOp::create(b, node.loc, inner, third);
  }
  CLEAVE_TRY(result, dot(inner, Second, SecondBias));
  CLEAVE_TRY(factors, node.value(weights));
  Value sums = nn::EinsumOp::create(b, node.loc, b.getStringAttr("abc,ab->ac"),
                                    result, factors);
  return one(node, node.reshape(Operand(sums), input.shape));
}

Error lowerMoE(Node &node) { return Layer(node).lower(); }

} // namespace

void addExpertOps(std::vector<OnnxOp> &table) {
  table.push_back(
      {"com.microsoft.MoE", 1, 1, 2, "nn.top_k nn.grouped_dot", lowerMoE});
}

} // namespace cleave::importer
