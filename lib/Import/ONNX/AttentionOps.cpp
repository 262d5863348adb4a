// Lowers Attention and RotaryEmbedding of opset 23. Attention is decomposed
// into the operations that exporters of older opsets use, so that one pass
// recognizes attention in all models.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// Reshapes [b, s, heads * d] and transposes it to [b, heads, s, d]. An operand
/// with four dimensions has this form already.
Expected<Operand> toHeads(Node &node, const Operand &x, int64_t heads) {
  if (x.rank() == 4)
    return x;
  if (x.rank() != 3 || heads <= 0 || x.shape[2] % heads)
    return reason("an input " + spell(x.shape) + " does not split into " +
                  Twine(heads) + " heads");
  CLEAVE_TRY(split, node.reshape(x, {x.shape[0], x.shape[1], heads,
                                     x.shape[2] / heads}));
  return node.transpose(split, {0, 2, 1, 3});
}

Expected<Operand> fromHeads(Node &node, const Operand &x, int64_t rank) {
  if (rank == 4)
    return x;
  CLEAVE_TRY(swapped, node.transpose(x, {0, 2, 1, 3}));
  ArrayRef<int64_t> shape = swapped.shape;
  return node.reshape(swapped, {shape[0], shape[1], shape[2] * shape[3]});
}

/// Repeats each KV head for the query heads that share it: [b, n, t, d] -> [b,
/// n * g, t, d], where n * g is `heads`.
Expected<Operand> repeatHeads(Node &node, const Operand &x, int64_t heads) {
  ArrayRef<int64_t> s = x.shape;
  if (s[1] == heads)
    return x;
  if (s[1] == 0 || heads % s[1])
    return reason(Twine(heads) + " query heads do not divide into " +
                  Twine(s[1]) + " key heads");
  int64_t groups = heads / s[1];
  CLEAVE_TRY(unit, node.reshape(x, {s[0], s[1], 1, s[2], s[3]}));
  CLEAVE_TRY(wide, node.broadcast(unit, {s[0], s[1], groups, s[2], s[3]}));
  return node.reshape(wide, {s[0], heads, s[2], s[3]});
}

Error lowerAttention(Node &node) {
  for (size_t i : {4, 5})
    if (node.has(i) && product(node.input(i).shape) != 0)
      return reason("past keys and values are not supported");
  if (node.has(6))
    return reason("nonpad_kv_seqlen is not supported");
  if (node.wants(1) || node.wants(2) || node.wants(3))
    return reason("outputs beyond the first are not supported");
  double softcap = node.floatAttr("softcap", 0);
  int64_t left = node.intAttr("left_window_size", -1);
  int64_t right = node.intAttr("right_window_size", -1);
  if (softcap < 0 || left < -1 || right < -1)
    return reason("a softcap of " + Twine(std::to_string(softcap)) +
                  " with windows of " + Twine(left) + " and " + Twine(right) +
                  " keys: softcap must be at least 0, windows at least -1");
  int64_t rank = node.input(0).rank();
  CLEAVE_TRY(q, toHeads(node, node.input(0), node.intAttr("q_num_heads", 0)));
  CLEAVE_TRY(narrowK,
             toHeads(node, node.input(1), node.intAttr("kv_num_heads", 0)));
  CLEAVE_TRY(narrowV,
             toHeads(node, node.input(2), node.intAttr("kv_num_heads", 0)));
  if (q.rank() != 4 || narrowK.rank() != 4 || narrowV.rank() != 4)
    return reason("its inputs must have rank 3 or 4");
  int64_t heads = q.shape[1], s = q.shape[2], t = narrowK.shape[2];
  CLEAVE_TRY(k, repeatHeads(node, narrowK, heads));
  CLEAVE_TRY(v, repeatHeads(node, narrowV, heads));
  CLEAVE_TRY(keys, node.transpose(k, {0, 1, 3, 2}));
  CLEAVE_TRY(product, matmul(node, q, keys));
  double scale = node.floatAttr("scale", 1 / std::sqrt(double(q.shape[3])));
  CLEAVE_TRY(scores, multiply(node, product, node.splat(q.type, {}, scale)));
  if (softcap != 0) {
    Operand cap = node.splat(q.type, {}, softcap);
    CLEAVE_TRY(inner, divide(node, scores, cap));
    CLEAVE_TRY(bounded, tanh(node, inner));
    CLEAVE_TRY(capped, multiply(node, bounded, cap));
    scores = capped;
  }
  Operand minusInfinity =
      node.splat(q.type, {}, -std::numeric_limits<double>::infinity());
  Operand zero = node.splat(q.type, {}, 0);
  if (node.has(3)) {
    Operand bias = node.input(3);
    if (bias.type == Element::Bool) {
      CLEAVE_TRY(additive, node.select(bias, zero, minusInfinity));
      bias = additive;
    }
    CLEAVE_TRY(sum, add(node, scores, bias));
    scores = sum;
  }
  // Query i sees the keys from i - left to i + right.
  int64_t lowest = left < 0 ? -s : -left, highest = right < 0 ? t : right;
  if (node.intAttr("is_causal", 0))
    highest = std::min<int64_t>(highest, 0);
  if (mlir::Value band = node.emitBand(s, t, lowest, highest)) {
    CLEAVE_TRY(additive, node.select(Operand(band), zero, minusInfinity));
    CLEAVE_TRY(sum, add(node, scores, additive));
    scores = sum;
  }
  CLEAVE_TRY(weights, softmax(node, scores, 3));
  CLEAVE_TRY(result, matmul(node, weights, v));
  CLEAVE_TRY(shaped, fromHeads(node, result, rank));
  node.set(0, shaped);
  return Error::success();
}

/// Returns the table of cosines or sines for each position, as [s, d/2] or [b,
/// s, d/2]. The input is a table [max, d/2], from which the node's positions
/// select rows, or has the form [b, s, d/2] already.
Expected<Operand> rotaryTable(Node &node, size_t index, int64_t batch,
                              int64_t length) {
  Operand table = node.input(index);
  if (node.has(3)) {
    const Operand &positions = node.input(3);
    if (table.rank() != 2)
      return reason("a table " + spell(table.shape) +
                    " with position_ids must have rank 2");
    CLEAVE_TRY(data, node.value(table));
    CLEAVE_TRY(where, node.value(positions));
    table =
        Operand(nn::GatherOp::create(node.builder, node.loc, data, where, 0));
  }
  if (table.rank() == 3 && table.shape[0] == 1) {
    CLEAVE_TRY(shared, node.reshape(table, {table.shape[1], table.shape[2]}));
    table = shared;
  }
  bool fits = table.rank() == 2
                  ? table.shape[0] == length
                  : table.rank() == 3 && table.shape[0] == batch &&
                        table.shape[1] == length;
  if (!fits)
    return reason("a table " + spell(table.shape) + " does not fit batch " +
                  Twine(batch) + " and sequence " + Twine(length));
  return table;
}

Error lowerRotary(Node &node) {
  const Operand &x = node.input(0);
  Operand rows; // [b, s, heads, d]
  if (x.rank() == 4) {
    CLEAVE_TRY(swapped, node.transpose(x, {0, 2, 1, 3}));
    rows = swapped;
  } else {
    int64_t heads = node.intAttr("num_heads", 0);
    if (x.rank() != 3 || heads <= 0 || x.shape[2] % heads)
      return reason("an input " + spell(x.shape) + " does not split into " +
                    Twine(heads) + " heads");
    CLEAVE_TRY(split, node.reshape(x, {x.shape[0], x.shape[1], heads,
                                       x.shape[2] / heads}));
    rows = split;
  }
  CLEAVE_TRY(cos, rotaryTable(node, 1, rows.shape[0], rows.shape[1]));
  CLEAVE_TRY(sin, rotaryTable(node, 2, rows.shape[0], rows.shape[1]));
  int64_t size = rows.shape[3];
  int64_t rotated = node.intAttr("rotary_embedding_dim", 0);
  if (rotated == 0)
    rotated = size;
  if (rotated > size || rotated % 2 || cos.shape.back() != rotated / 2 ||
      sin.shape != cos.shape)
    return reason("tables " + spell(cos.shape) + " and " + spell(sin.shape) +
                  " do not fit " + Twine(rotated) + " rotated features");
  Shape zero(4, 0), ones(4, 1), box = rows.shape;
  box[3] = rotated;
  CLEAVE_TRY(first, node.slice(rows, zero, box, ones));
  CLEAVE_TRY(value, node.value(first));
  CLEAVE_TRY(cosValue, node.value(cos));
  CLEAVE_TRY(sinValue, node.value(sin));
  Operand result(nn::RotaryOp::create(
      node.builder, node.loc, value.getType(), value, cosValue, sinValue,
      /*interleaved=*/node.intAttr("interleaved", 0) != 0, /*inverse=*/false));
  if (rotated != size) {
    Shape offsets = zero;
    offsets[3] = rotated;
    box[3] = size - rotated;
    CLEAVE_TRY(rest, node.slice(rows, offsets, box, ones));
    CLEAVE_TRY(joined, node.concat({result, rest}, 3));
    result = joined;
  }
  Expected<Operand> shaped = x.rank() == 4
                                 ? node.transpose(result, {0, 2, 1, 3})
                                 : node.reshape(result, x.shape);
  if (!shaped)
    return shaped.takeError();
  node.set(0, *shaped);
  return Error::success();
}

} // namespace

void addAttentionOps(std::vector<OnnxOp> &table) {
  table.push_back(
      {"Attention", 23, kNewest, 1, "nn.attention", lowerAttention});
  table.push_back(
      {"RotaryEmbedding", 23, kNewest, 1, "nn.rotary", lowerRotary});
}

} // namespace cleave::importer
