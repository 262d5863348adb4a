// Recognizes sums over experts in which each term is a product of factors, and
// one factor is a test whether the token chose the expert: [ids = n] for expert
// n.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H

#include "ExpertFamily.h"

namespace cleave::nn {

/// A factor of the terms in a sum over experts: a family, which has one value
/// per expert, and a frame. The frame says, for each dimension of the value of
/// one expert, which dimension of the sum it corresponds to. Dimension i of the
/// sum's result has the number i. If the terms themselves sum over a further
/// dimension, that dimension has the next number.
struct Factor {
  Family family;
  Dims frame;
};

/// The terms of a sum over experts. The term of expert n is the product of the
/// test [ids = n] and of the factors for expert n. If a token chooses several
/// experts, the term is the sum of this product over the choices of the token;
/// `slot` is then the number of the dimension of choices (see Factor). `slot`
/// is -1 if the terms have no such sum.
struct ExpertProduct {
  int64_t experts = 0;
  std::optional<ExpertTest> test;
  llvm::SmallVector<Factor> factors;
  int64_t slot = -1;
};

/// `terms` are the terms of a sum over experts, one per expert. If the term of
/// each expert n is a product of the test [ids = n] and other factors, returns
/// the test and the factors. Otherwise returns nullopt.
std::optional<ExpertProduct> productOf(const Family &terms);

/// Like productOf, for an einsum that sums over experts by contraction: it must
/// contract exactly one letter, the dimension of experts.
std::optional<ExpertProduct> productOfContracted(EinsumOp op);

/// If a single term of a sum over experts contains a test [ids = n] as a
/// factor, returns the test and the expert's number n.
std::optional<std::pair<ExpertTest, int64_t>> expertOf(mlir::Value term);

/// Returns the number of experts from which the ids were chosen, if they are
/// results of nn.top_k or nn.argmax; otherwise nullopt.
std::optional<int64_t> choicesOf(mlir::Value ids);

} // namespace cleave::nn

#endif
