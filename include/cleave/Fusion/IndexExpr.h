// Linear expressions over loop variables. They are the indices at which a
// kernel reads and writes tensors.
//
// Views (reshape, transpose, slice, broadcast, ...) cost nothing in a kernel:
// they only change the expressions by which their operand is indexed. Reshapes
// divide indices by constants. These divisions and remainders are simplified
// with the ranges of the variables; one that cannot be simplified becomes a new
// variable. Splitting an index into several and recombining them yields the
// original expression.

#ifndef CLEAVE_FUSION_INDEXEXPR_H
#define CLEAVE_FUSION_INDEXEXPR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace cleave::kernels {

struct IndexVar;
struct Node;

/// An index of the form constant + sum of coefficient * variable. Expressions
/// that the simplifier recognises as equal have equal terms.
class IndexExpr {
public:
  using Term = std::pair<const IndexVar *, int64_t>;

  IndexExpr(int64_t constant = 0) : constantTerm(constant) {}
  static IndexExpr of(const IndexVar *var);

  int64_t constant() const { return constantTerm; }
  llvm::ArrayRef<Term> terms() const { return termList; }
  bool isConstant() const { return termList.empty(); }

  /// Return a lower and an upper bound of the expression's value, from the
  /// ranges of its variables.
  int64_t min() const;
  int64_t max() const;
  /// Returns the set of loops on whose variables the value depends, as a bit
  /// mask.
  uint64_t loops() const;
  /// Returns the factor of a variable, or 0 if the variable does not occur.
  int64_t coefficient(const IndexVar *var) const;

  IndexExpr operator+(const IndexExpr &other) const;
  IndexExpr operator-(const IndexExpr &other) const;
  IndexExpr operator*(int64_t factor) const;
  bool operator==(const IndexExpr &other) const {
    return constantTerm == other.constantTerm && termList == other.termList;
  }
  bool operator<(const IndexExpr &other) const;

private:
  int64_t constantTerm;
  llvm::SmallVector<Term, 3> termList; // ordered by the variables' ids
};

/// A variable with 0 <= value < size.
struct IndexVar {
  enum class Kind {
    Loop,     ///< the induction variable of loop number `loop`
    FloorDiv, ///< base / divisor, rounded down
    Mod,      ///< base - base / divisor * divisor
    Data,     ///< known only at run time: the value of `node`
  };
  unsigned id;
  Kind kind;
  int64_t size;
  uint64_t loops; ///< the loops that it depends on, as a bit mask
  unsigned loop = 0;
  IndexExpr base;
  int64_t divisor = 1;
  Node *node = nullptr;
};

/// Returns whether `index` is inside a tensor of shape `shape` even where the
/// condition that guards the access is false. Returns false for an index with a
/// variable of kind Data, because only the guard ensures that it is in range.
bool isInBounds(llvm::ArrayRef<IndexExpr> index, llvm::ArrayRef<int64_t> shape);

/// Owns variables and simplifies expressions.
class IndexSpace {
public:
  /// Adds a loop of `size` iterations. Loop numbers are less than 64, because
  /// sets of loops are bit masks.
  const IndexVar *addLoop(int64_t size);
  unsigned numLoops() const { return loopCount; }
  /// Returns the variable of a loop as an expression, or the constant 0 if the
  /// loop has only one iteration.
  static IndexExpr indexOf(const IndexVar *loop) {
    return loop->size == 1 ? IndexExpr(0) : IndexExpr::of(loop);
  }
  /// Returns a new variable for the value of `node`, which is known only at run
  /// time and is in [0, size). `loops` are the loops that it depends on.
  IndexExpr data(Node *node, int64_t size, uint64_t loops);

  IndexExpr floorDiv(const IndexExpr &expr, int64_t divisor);
  IndexExpr mod(const IndexExpr &expr, int64_t divisor);

  /// Splits the row-major index of an element into its indices in all
  /// dimensions.
  llvm::SmallVector<IndexExpr> delinearize(IndexExpr index,
                                           llvm::ArrayRef<int64_t> shape);
  IndexExpr linearize(llvm::ArrayRef<IndexExpr> index,
                      llvm::ArrayRef<int64_t> shape);

private:
  const IndexVar *unique(IndexVar::Kind kind, const IndexExpr &base,
                         int64_t divisor, int64_t size);
  IndexVar *create(IndexVar::Kind kind, int64_t size, uint64_t loops);
  /// Replaces a * Mod(e, k) + a * k * FloorDiv(e, k) in `expr` by a * e.
  IndexExpr recombine(IndexExpr expr);

  unsigned loopCount = 0;
  std::vector<std::unique_ptr<IndexVar>> vars;
  std::map<std::tuple<int, int64_t, IndexExpr>, const IndexVar *> derived;
};

} // namespace cleave::kernels

#endif
