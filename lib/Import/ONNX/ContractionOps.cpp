// MatMul, Gemm and Einsum, all as nn.einsum.

#include "Families.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

namespace {

Expected<Operand> einsum(Node &node, const Twine &equation, const Operand &a,
                         const Operand &b) {
  Operand operands[] = {a, b};
  widenToOneType(operands);
  const Operand &lhs = operands[0], &rhs = operands[1];
  if (!isFloat(lhs.type) || lhs.type != rhs.type)
    return reason("its operands have types " + nameOf(lhs.type) + " and " +
                  nameOf(rhs.type) + ", expected floats of one type");
  std::string text = equation.str();
  auto attribute = node.builder.getStringAttr(text);
  auto labels = nn::EinsumOp::parseLabels(text);
  // Checks the sizes that the type inference of nn.einsum asserts, so that an
  // invalid file gives an error message and no crash.
  auto sizeOf = [](const Operand &operand, StringRef names, char label) {
    size_t at = names.find(label);
    return at == StringRef::npos ? int64_t(-1) : operand.shape[at];
  };
  for (char label : labels.lhs) {
    int64_t other = sizeOf(rhs, labels.rhs, label);
    if (other != -1 && other != sizeOf(lhs, labels.lhs, label))
      return reason("shapes " + spell(lhs.shape) + " and " + spell(rhs.shape) +
                    " do not fit '" + text + "'");
  }
  // A sum of no terms is zero.
  if (product(lhs.shape) == 0 || product(rhs.shape) == 0) {
    Shape shape;
    for (char label : labels.result) {
      int64_t size = sizeOf(lhs, labels.lhs, label);
      shape.push_back(size != -1 ? size : sizeOf(rhs, labels.rhs, label));
    }
    return node.splat(lhs.type, shape, 0);
  }
  CLEAVE_TRY(left, node.value(lhs));
  CLEAVE_TRY(right, node.value(rhs));
  return Operand(
      nn::EinsumOp::create(node.builder, node.loc, attribute, left, right));
}

/// Removes the leading dimensions of size 1 of a MatMul operand, which only
/// broadcast against the other operand, and assigns letters to the remaining
/// dimensions.
Expected<Operand> batchLabels(Node &node, const Operand &operand,
                              ArrayRef<int64_t> batch, std::string &labels) {
  int64_t own = operand.rank() - 2, lead = int64_t(batch.size()) - own;
  Shape shape;
  for (int64_t dim = 0; dim < own; ++dim) {
    if (operand.shape[dim] == 1 && batch[lead + dim] != 1)
      continue;
    labels.push_back('a' + lead + dim);
    shape.push_back(operand.shape[dim]);
  }
  shape.append(operand.shape.end() - 2, operand.shape.end());
  return node.reshape(operand, shape);
}

Error lowerMatMul(Node &node) {
  return one(node, matmul(node, node.input(0), node.input(1)));
}

Error lowerGemm(Node &node) {
  const Operand &a = node.input(0), &b = node.input(1);
  if (a.rank() != 2 || b.rank() != 2)
    return reason("its operands are " + spell(a.shape) + " and " +
                  spell(b.shape) + ", expected matrices");
  CLEAVE_TRY(product,
             einsum(node,
                    Twine(node.intAttr("transA", 0) ? "ba" : "ab") +
                        (node.intAttr("transB", 0) ? ",cb" : ",bc") + "->ac",
                    a, b));
  Operand result = product;
  double alpha = node.floatAttr("alpha", 1), beta = node.floatAttr("beta", 1);
  if (alpha != 1) {
    CLEAVE_TRY(scaled, multiply(node, result, node.splat(a.type, {}, alpha)));
    result = scaled;
  }
  if (node.has(2) && beta != 0) {
    Operand bias = node.input(2);
    if (beta != 1) {
      CLEAVE_TRY(scaled, multiply(node, bias, node.splat(a.type, {}, beta)));
      bias = scaled;
    }
    CLEAVE_TRY(sum, add(node, result, bias));
    result = sum;
  }
  node.set(0, result);
  return Error::success();
}

/// Sums the operand of an Einsum over the letters that occur neither in another
/// operand nor in the result.
Expected<Operand> sumUnused(Node &node, const Operand &operand,
                            std::string &labels, StringRef elsewhere) {
  Shape dims;
  std::string kept;
  for (auto [dim, label] : llvm::enumerate(labels)) {
    if (elsewhere.contains(label))
      kept.push_back(label);
    else
      dims.push_back(dim);
  }
  labels = kept;
  return reduce(node, nn::Combiner::Sum, operand, dims, /*keep=*/false);
}

/// Replaces "..." by letters that the equation does not use, one for each batch
/// dimension.
Expected<std::string> expandEllipsis(StringRef labels, int64_t rank,
                                     StringRef pool) {
  size_t at = labels.find("...");
  if (at == StringRef::npos)
    return labels.str();
  int64_t count = rank - int64_t(labels.size() - 3);
  if (count < 0 || count > int64_t(pool.size()))
    return reason("labels '" + labels + "' do not fit rank " + Twine(rank));
  return (labels.take_front(at) + pool.take_back(count) +
          labels.drop_front(at + 3))
      .str();
}

Error lowerEinsum(Node &node) {
  std::string equation = node.stringAttr("equation", "");
  llvm::erase_if(equation, [](char c) { return c == ' '; });
  auto [inputs, output] = StringRef(equation).split("->");
  bool implicit = !StringRef(equation).contains("->");
  SmallVector<StringRef> terms;
  inputs.split(terms, ',');
  if (terms.size() != node.numInputs() || terms.size() > 2)
    return reason("equation '" + equation + "' has " + Twine(terms.size()) +
                  " operands; one or two are supported");
  // Letters for the ellipsis.
  std::string pool;
  for (char c = 'A'; c <= 'Z'; ++c)
    if (!StringRef(equation).contains(c))
      pool.push_back(c);
  pool.resize(std::min<size_t>(pool.size(), 8));
  SmallVector<std::string, 2> labels;
  int64_t widest = 0;
  for (auto [index, term] : llvm::enumerate(terms)) {
    int64_t rank = node.input(index).rank();
    CLEAVE_TRY(expanded, expandEllipsis(term, rank, pool));
    if (int64_t(expanded.size()) != rank)
      return reason("labels '" + term + "' do not fit rank " + Twine(rank));
    for (char c : expanded)
      if (!llvm::isAlpha(c) || StringRef(expanded).count(c) > 1)
        return reason("labels '" + term + "' are not supported");
    if (term.contains("..."))
      widest = std::max(widest, rank - int64_t(term.size()) + 3);
    labels.push_back(expanded);
  }
  std::string result;
  if (implicit) {
    // The letters of the implicit output: the batch dimensions, then letters
    // that occur once, sorted.
    std::string all = labels[0] + (labels.size() > 1 ? labels[1] : "");
    result = StringRef(pool).take_back(widest).str();
    std::string once;
    for (char c : all)
      if (StringRef(all).count(c) == 1 && !StringRef(result).contains(c))
        once.push_back(c);
    llvm::sort(once);
    result += once;
  } else {
    CLEAVE_TRY(
        expanded,
        expandEllipsis(output, int64_t(output.size()) - 3 + widest, pool));
    result = expanded;
  }
  for (char c : result)
    if (StringRef(result).count(c) > 1)
      return reason("equation '" + equation + "' has '" + Twine(c) +
                    "' twice in its result");
  // nn.einsum does not broadcast sizes of 1 within the ellipsis.
  SmallVector<Operand, 2> operands;
  for (size_t i = 0; i < terms.size(); ++i) {
    std::string elsewhere = result + (terms.size() == 2 ? labels[1 - i] : "");
    CLEAVE_TRY(summed, sumUnused(node, node.input(i), labels[i], elsewhere));
    operands.push_back(summed);
  }
  if (operands.size() == 1) {
    Shape permutation;
    for (char c : result) {
      size_t at = StringRef(labels[0]).find(c);
      if (at == StringRef::npos)
        return reason("equation '" + equation + "' is not supported");
      permutation.push_back(at);
    }
    return one(node, node.transpose(operands[0], permutation));
  }
  for (char c : result)
    if (!StringRef(labels[0] + labels[1]).contains(c))
      return reason("equation '" + equation + "' is not supported");
  return one(node, einsum(node, labels[0] + "," + labels[1] + "->" + result,
                          operands[0], operands[1]));
}

} // namespace

Expected<Operand> matmul(Node &node, const Operand &lhs, const Operand &rhs) {
  Operand a = lhs, b = rhs;
  bool vectorA = a.rank() == 1, vectorB = b.rank() == 1;
  if (a.rank() == 0 || b.rank() == 0)
    return reason("its operands are " + spell(a.shape) + " and " +
                  spell(b.shape) + ", expected at least one dimension");
  if (vectorA) {
    CLEAVE_TRY(row, node.reshape(a, {1, a.shape[0]}));
    a = row;
  }
  if (vectorB) {
    CLEAVE_TRY(column, node.reshape(b, {b.shape[0], 1}));
    b = column;
  }
  CLEAVE_TRY(batch, broadcastShapes(ArrayRef<int64_t>(a.shape).drop_back(2),
                                    ArrayRef<int64_t>(b.shape).drop_back(2)));
  if (batch.size() > 20)
    return reason("it has too many dimensions");
  std::string left, right, all;
  CLEAVE_TRY(narrowA, batchLabels(node, a, batch, left));
  CLEAVE_TRY(narrowB, batchLabels(node, b, batch, right));
  for (size_t dim = 0; dim < batch.size(); ++dim)
    all.push_back('a' + dim);
  CLEAVE_TRY(result, einsum(node, left + "xy," + right + "yz->" + all + "xz",
                            narrowA, narrowB));
  Shape shape = batch;
  if (!vectorA)
    shape.push_back(a.shape[a.rank() - 2]);
  if (!vectorB)
    shape.push_back(b.shape.back());
  return node.reshape(result, shape);
}

void addContractionOps(std::vector<OnnxOp> &table) {
  table.push_back({"Einsum", 12, kNewest, 1, "nn.einsum", lowerEinsum});
  table.push_back({"Gemm", kOldest, kNewest, 1, "nn.einsum arith.addf",
                   lowerGemm,
                   /*weightsFrom=*/0});
  table.push_back({"MatMul", kOldest, kNewest, 1, "nn.einsum", lowerMatMul});
}

} // namespace cleave::importer
