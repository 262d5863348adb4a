// Recognizes sums over experts in which each term is a product of a test (did
// the token choose this expert?) and factors.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H

#include "ExpertFamily.h"

namespace cleave::nn {

/// A factor: a family of values, one per expert, and the numbers that identify
/// the dimensions of a member (its frame). The dimensions of the sum over
/// experts have the numbers 0, 1, ...; dimensions that are summed inside of it
/// have the numbers after these.
struct Factor {
  Family family;
  Dims frame;
};

/// The term of one expert in a sum over experts: test * factors, summed over
/// slots. The slots of a token are the experts that it chose. `slot` is the
/// number that identifies the dimension of slots; it is -1 if each token has
/// one slot.
struct ExpertProduct {
  int64_t experts = 0;
  std::optional<ExpertTest> test;
  llvm::SmallVector<Factor> factors;
  int64_t slot = -1;
};

/// If each term of a sum over experts is a product of a test for the expert and
/// factors, returns this product; otherwise returns nullopt.
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
