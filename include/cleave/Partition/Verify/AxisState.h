// The lattice of the analysis dist-verify-variance, for one mesh axis.
#ifndef CLEAVE_PARTITION_VERIFY_AXISSTATE_H
#define CLEAVE_PARTITION_VERIFY_AXISSTATE_H

#include "cleave/Dialect/Dist/IR/Layout.h"

#include "llvm/ADT/Twine.h"
#include "llvm/ADT/bit.h"

namespace cleave::partition {

/// What the ranks along one mesh axis hold of a value. A partial result is one
/// rank's contribution to a sum, maximum or minimum over the ranks.
struct AxisState {
  enum Kind : uint8_t {
    Zero,      // zeros: a tile, a partial result or the whole value
    Invariant, // the same value on all ranks
    Split,     // tiles of one dimension
    Partial,   // partial results of the reduction `reduce`
    Varying,   // different values whose relation is unknown
  };
  Kind kind = Zero;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// A bit set of dimensions. If `kind` is Split: the dimensions of which one
  /// is split; several if it is not known which one. For example, after a
  /// reshape of one-element tiles, a tensor [1, 2] that is split on the first
  /// dimension looks like one that is split on the second. If `kind` is
  /// Invariant: the dimensions along which all elements of the value are equal,
  /// so that the value can also be read as a tile.
  uint64_t dims = 0;
  /// For Split and Partial: true if `kind` is only one of several
  /// possibilities. For example, for a value that consists either of tiles or
  /// of partial results, `kind` is Split, and `maybe` and `orPartial` are true.
  /// An operation that is not valid for a value of this kind treats the value
  /// as Varying.
  bool maybe = false;
  /// For Split, Varying and Invariant: true if the value may instead be partial
  /// results, combined by `reduce`.
  bool orPartial = false;
  /// For Split: the axes that are known to split the same dimension as this
  /// axis and to be minor to it.
  dist::AxisSet majorTo = 0;

  static AxisState split(int64_t dim) {
    AxisState state;
    state.kind = Split;
    state.dims = uint64_t(1) << std::min<int64_t>(dim, 63);
    return state;
  }
  static AxisState partial(dist::ReduceKind kind) {
    AxisState state;
    state.kind = Partial;
    state.reduce = kind;
    return state;
  }
  static AxisState of(Kind kind, uint64_t dims = 0) {
    AxisState state;
    state.kind = kind;
    state.dims = dims;
    return state;
  }
  bool isSplitOn(int64_t dim) const {
    return kind == Split && dims >> std::min<int64_t>(dim, 63) & 1;
  }
  /// Whether the ranks certainly hold tiles of one known dimension of the
  /// value.
  bool isSurelySplit() const {
    return kind == Split && llvm::popcount(dims) == 1 && !maybe;
  }
  bool isSurelySplitOn(int64_t dim) const {
    return isSplitOn(dim) && isSurelySplit();
  }
  /// Whether the values of the ranks may be read as partial results of the
  /// reduction `kind`.
  bool mayBePartial(dist::ReduceKind kind) const {
    if (this->kind == Zero)
      return kind == dist::ReduceKind::Sum;
    return (this->kind == Partial || orPartial) && reduce == kind;
  }
  std::string str() const {
    switch (kind) {
    case Zero:
      return "zero";
    case Invariant:
      return "invariant";
    case Split:
      return ("split on dimension " + llvm::Twine(llvm::countr_zero(dims)))
          .str();
    case Partial:
      return ("partial (" + dist::stringifyReduceKind(reduce) + ")").str();
    case Varying:
      return "varying";
    }
    llvm_unreachable("unknown state");
  }
};

/// One state for each mesh axis.
using State = llvm::SmallVector<AxisState, 4>;

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_AXISSTATE_H
