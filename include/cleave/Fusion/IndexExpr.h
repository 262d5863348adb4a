// Linear expressions over loop variables, which are the indices at which a
// kernel reads and writes.
//
// Views (reshape, transpose, slice, broadcast, ...) cost nothing in a kernel:
// they change the expressions by which their operand is read. Divisions and
// remainders by constants, which come from reshapes, are simplified with the
// ranges of the variables. A division or remainder that cannot be simplified
// becomes a new variable. Splitting an index and recombining it yields the
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

  /// The smallest and the largest value of the expression, from the ranges of
  /// its variables.
  int64_t min() const;
  int64_t max() const;
  /// The set of loops that the value depends on, as a bit mask.
  uint64_t loops() const;
  /// The factor of a variable; 0 if the variable does not occur.
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
    Loop,     ///< counted by a loop, `loop` its number
    FloorDiv, ///< base / divisor, rounded down
    Mod,      ///< base - base / divisor * divisor
    Data,     ///< an index that is data: the value of `node`
  };
  unsigned id;
  Kind kind;
  int64_t size;
  uint64_t loops; ///< the loops it depends on
  unsigned loop = 0;
  IndexExpr base;
  int64_t divisor = 1;
  Node *node = nullptr;
};

/// Returns whether `index` is within a tensor of this shape even where the
/// conditions that guard the access are false. Returns false for an index that
/// is loaded from memory, because only its guards ensure that it is in range.
bool isInBounds(llvm::ArrayRef<IndexExpr> index, llvm::ArrayRef<int64_t> shape);

/// Owns variables and simplifies expressions.
class IndexSpace {
public:
  /// Adds a loop of `size` iterations. Loop numbers are less than 64, because
  /// sets of loops are bit masks.
  const IndexVar *addLoop(int64_t size);
  unsigned numLoops() const { return loopCount; }
  /// Returns the index of a loop as an expression; 0 if the loop runs only
  /// once.
  static IndexExpr indexOf(const IndexVar *loop) {
    return loop->size == 1 ? IndexExpr(0) : IndexExpr::of(loop);
  }
  /// Returns an index in [0, size) that `node` loads from memory.
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
  /// Replaces a * Mod(e, k) + a k * FloorDiv(e, k) by a * e.
  IndexExpr recombine(IndexExpr expr);

  unsigned loopCount = 0;
  std::vector<std::unique_ptr<IndexVar>> vars;
  std::map<std::tuple<int, int64_t, IndexExpr>, const IndexVar *> derived;
};

} // namespace cleave::kernels

#endif
