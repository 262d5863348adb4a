// Recognizes sums over experts in which each term is a product of factors, and
// one factor is a test whether the token chose the expert: [ids = n] for expert
// n.

#include "ExpertProduct.h"

using namespace mlir;

namespace cleave::nn {

std::optional<int64_t> choicesOf(Value ids) {
  if (auto top = ids.getDefiningOp<TopKOp>())
    return ids == top.getIndices()
               ? std::optional(shapeOf(top.getInput()).back())
               : std::nullopt;
  if (auto best = ids.getDefiningOp<ArgMaxOp>())
    return shapeOf(best.getInput())[best.getDim()];
  return std::nullopt;
}

namespace {

/// If the result of the operation `step` is the product of its operands
/// (possibly broadcast, transposed or summed over one dimension), returns these
/// operands. One of them may contain the test [ids = n]. Each operand is
/// returned with its frame, the numbers of its dimensions (see Factor); `frame`
/// is the frame of the result. If the operation sums over a dimension (the
/// choices of a token), sets `sums` to true, and this dimension gets the number
/// `slot`. Returns an empty list for other operations.
SmallVector<std::pair<Family, Dims>>
partsOf(const FamilyStep &step, const Dims &frame, int64_t slot, bool &sums) {
  sums = false;
  switch (step.kind) {
  case FamilyStep::Elementwise:
    if (auto select = dyn_cast<arith::SelectOp>(step.op);
        isa<arith::MulFOp>(step.op) ||
        (select && isSplat(select.getFalseValue(), 0)))
      return {{step.operands[0], frame}, {step.operands[1], frame}};
    return {};
  case FamilyStep::Broadcast: {
    Dims inner;
    for (int64_t dim : step.dims)
      inner.push_back(frame[dim]);
    return {{step.operands[0], inner}};
  }
  case FamilyStep::Transpose: {
    Dims inner(frame.size());
    for (auto [to, from] : llvm::enumerate(step.dims))
      inner[from] = frame[to];
    return {{step.operands[0], inner}};
  }
  case FamilyStep::Reduce: {
    if (step.dims.size() != 1)
      return {};
    Dims inner = frame;
    inner.insert(inner.begin() + step.dims[0], slot);
    sums = true;
    return {{step.operands[0], inner}};
  }
  case FamilyStep::Einsum: {
    StringRef result = step.labels.result;
    auto frameOf = [&](StringRef letters) {
      Dims inner;
      for (char letter : letters) {
        size_t at = result.find(letter);
        sums |= at == StringRef::npos;
        inner.push_back(at == StringRef::npos ? slot : frame[at]);
      }
      return inner;
    };
    Dims left = frameOf(step.labels.lhs), right = frameOf(step.labels.rhs);
    if (llvm::count(left, slot) > 1 || llvm::count(right, slot) > 1)
      return {};
    return {{step.operands[0], left}, {step.operands[1], right}};
  }
  default:
    return {};
  }
}

/// Splits the terms of a sum over experts (a family: one value per expert) into
/// factors, one of which is the test [ids = n].
class Peeler {
public:
  explicit Peeler(int64_t slot) : slot(slot) {}

  ExpertProduct product;

  /// Adds the factors of `family` (one value per expert) to `product`: the test
  /// [ids = n] to `product.test`, all others to `product.factors`. Returns
  /// false if two different tests are found.
  bool peel(const Family &family, const Dims &frame) {
    if (std::optional<ExpertTest> test = testOf(family, frame)) {
      if (product.test && !(*product.test == *test))
        return false;
      product.test = test;
      return true;
    }
    std::optional<FamilyStep> step = stepOf(family);
    if (!step || !peelParts(*step, frame))
      product.factors.push_back({family, frame});
    return true;
  }

private:
  /// If the operation `step` is a product of operands (see partsOf) and one of
  /// them contains the test [ids = n], splits all these operands into factors.
  /// Otherwise returns false and changes nothing; the result of the operation
  /// is then a single factor.
  bool peelParts(const FamilyStep &step, const Dims &frame) {
    bool sums;
    auto parts = partsOf(step, frame, slot, sums);
    if (parts.empty() || (sums && product.slot >= 0))
      return false;
    ExpertProduct before = product;
    product.test.reset();
    if (sums)
      product.slot = slot;
    bool found = llvm::all_of(
        parts, [&](const auto &part) { return peel(part.first, part.second); });
    found = found && product.test &&
            (!before.test || *before.test == *product.test);
    if (!found)
      product = before;
    return found;
  }

  int64_t slot;
};

std::optional<std::pair<ExpertTest, int64_t>>
expertIn(Value value, const Dims &frame, int64_t slot, bool maySum) {
  if (auto found = testOf(value, frame))
    return found;
  std::optional<FamilyStep> step = stepOf(value);
  bool sums = false;
  if (!step)
    return std::nullopt;
  auto parts = partsOf(*step, frame, slot, sums);
  if (sums && !maySum)
    return std::nullopt;
  for (const auto &[part, inner] : parts)
    if (auto found = expertIn(part.first(), inner, slot, maySum && !sums))
      return found;
  return std::nullopt;
}

} // namespace

std::optional<std::pair<ExpertTest, int64_t>> expertOf(Value term) {
  int64_t rank = rankOf(term);
  return expertIn(term, allDims(rank), rank, true);
}

/// Returns the product if it is a term of a mixture of experts: it must contain
/// a test [ids = n]. If the term sums over the choices of a token, the ids must
/// also have the dimension of choices. Otherwise returns nullopt.
static std::optional<ExpertProduct> checked(ExpertProduct product,
                                            int64_t experts) {
  product.experts = experts;
  if (!product.test || (product.slot >= 0 &&
                        !llvm::is_contained(product.test->frame, product.slot)))
    return std::nullopt;
  return product;
}

std::optional<ExpertProduct> productOf(const Family &terms) {
  Dims frame = allDims(terms.rank());
  Peeler peeler(frame.size());
  if (!peeler.peel(terms, frame))
    return std::nullopt;
  return checked(peeler.product, terms.dim < 0
                                     ? terms.members.size()
                                     : shapeOf(terms.first())[terms.dim]);
}

std::optional<ExpertProduct> productOfContracted(EinsumOp op) {
  EinsumOp::Labels labels = op.getLabels();
  std::string contracted;
  for (char letter : labels.lhs)
    if (!StringRef(labels.result).contains(letter))
      contracted.push_back(letter);
  if (contracted.size() != 1)
    return std::nullopt;
  Peeler peeler(labels.result.size());
  for (auto [value, letters] : {std::pair(op.getLhs(), labels.lhs),
                                std::pair(op.getRhs(), labels.rhs)}) {
    size_t at = letters.find(contracted[0]);
    letters.erase(at, 1);
    Dims frame;
    for (char letter : letters)
      frame.push_back(labels.result.find(letter));
    if (!peeler.peel(Family::along(value, at), frame))
      return std::nullopt;
  }
  return checked(peeler.product,
                 shapeOf(op.getLhs())[labels.lhs.find(contracted[0])]);
}

} // namespace cleave::nn
