// The lattice of dist-verify-variance, for one axis of the mesh.
#ifndef CLEAVE_PARTITION_VERIFY_AXISSTATE_H
#define CLEAVE_PARTITION_VERIFY_AXISSTATE_H

#include "cleave/Dialect/Dist/IR/Layout.h"

#include "llvm/ADT/Twine.h"
#include "llvm/ADT/bit.h"

namespace cleave::partition {

/// What the ranks along one axis hold.
struct AxisState {
  enum Kind : uint8_t {
    Zero,      // zeros: a tile, a partial sum or the whole of a zero tensor
    Invariant, // the same value; the same along `dims` too
    Split,     // tiles of a dimension
    Partial,   // partial sums or candidates, combined by `reduce`
    Varying,   // different values, not known how
  };
  Kind kind = Zero;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// A set of dimensions. Split: which may be the one that is split; a reshape
  /// of tiles of one element cannot tell [1, 2] split on the first from the
  /// second. Invariant: along which the value repeats, so that it is a tile as
  /// well.
  uint64_t dims = 0;
  /// One of several things that the value may be, of Split or Partial; where it
  /// turns out to be another one, it is as good as Varying.
  bool maybe = false;
  /// Split, Varying, Invariant: it may be partial sums or candidates, as
  /// `reduce` says.
  bool orPartial = false;
  /// Split: the axes that are known to split the same dimension further.
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
  /// Whether the value is tiles of one dimension and cannot be anything else.
  bool isSurelySplit() const {
    return kind == Split && llvm::popcount(dims) == 1 && !maybe;
  }
  bool isSurelySplitOn(int64_t dim) const {
    return isSplitOn(dim) && isSurelySplit();
  }
  /// Whether it may be read as partial sums or candidates of this kind.
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

/// One for each axis of the mesh.
using State = llvm::SmallVector<AxisState, 4>;

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_AXISSTATE_H
