// Recognizes sums over experts in which each term is a product of a test (did
// the token choose this expert?) and factors.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H

#include "ExpertFamily.h"

namespace cleave::nn {

/// A family of values, one per expert, and a name (a number) for each dimension
/// of a member. The dimensions of the sum over experts have the names 0, 1,
/// ...; dimensions that are reduced inside the sum have the numbers that
/// follow.
struct Factor {
  Family family;
  Dims frame;
};

/// What one expert contributes to a sum over experts: the sum over slots of
/// test * factors. A slot is one of the experts that a token chose. `slot` is
/// the name of the dimension that enumerates the slots of a token; it is -1 if
/// a token has one slot.
struct ExpertProduct {
  int64_t experts = 0;
  std::optional<ExpertTest> test;
  llvm::SmallVector<Factor> factors;
  int64_t slot = -1;
};

/// Returns the terms of a sum over experts, one per expert, as a product of a
/// test for the expert and factors; nullopt if they are not such a product.
std::optional<ExpertProduct> productOf(const Family &terms);

/// Like productOf, for an einsum that sums over experts by contraction. Exactly
/// one of its letters stands for the experts.
std::optional<ExpertProduct> productOfContracted(EinsumOp op);

/// Returns the test that one term of a sum over experts contains, and the
/// expert for which it tests.
std::optional<std::pair<ExpertTest, int64_t>> expertOf(mlir::Value term);

/// The number of experts that the ids choose from, if the ids come from
/// nn.top_k or nn.argmax; else nullopt.
std::optional<int64_t> choicesOf(mlir::Value ids);

} // namespace cleave::nn

#endif
