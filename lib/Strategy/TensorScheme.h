// The mesh axes that split each dimension under the layouts of tensor
// parallelism: Megatron's in one dimension (Shoeybi et al., 2019), with its
// sequence parallelism (Korthikanti et al., 2022); 2D, SUMMA on a grid (Xu et
// al., 2021); 2.5D (Wang et al., 2021); 3D (Bian et al., 2021).
//
// A dimension of features has one of two colours. Those that are worth
// splitting in one dimension (heads, MLP width, vocabulary) are chosen. The
// dimensions opposite them in a parameter (the hidden size) are hidden. A value
// with a chosen dimension is inner, one with a hidden dimension is outer. A
// product with a parameter maps outer to inner values or inner to outer ones.

#ifndef CLEAVE_LIB_STRATEGY_TENSORSCHEME_H
#define CLEAVE_LIB_STRATEGY_TENSORSCHEME_H

#include "StrategyUtils.h"

namespace cleave::strategy {

enum class Colour { Hidden, Chosen };
/// The side of a parameter's dimension in the first product that reads it:
/// contracted (In), or in the result (Out).
enum class Side { In, Out };

struct TensorScheme {
  using List = llvm::SmallVector<dist::AxisRefAttr>;

  /// The layout of values of one kind.
  struct State {
    List batch, sequence, features;
  };
  State outer, inner;
  /// The axes that split the batch in the function's inputs: the axes common to
  /// outer and inner values.
  List inputs;
  /// The batch axes during a product with a parameter.
  List computeBatch;
  /// The axes that split a parameter's dimension during a product with it:
  /// given by side for 2D and 2.5D, by colour for the other layouts.
  bool bySide = false;
  List computeIn, computeOut, computeHidden, computeChosen;
  /// Parameters are stored split over these axes too, on side `In`.
  List gathered;
  /// Axes that already split the batch (major to those of the layout) and the
  /// positions. Ranks along these axes have different elements, too.
  List samples, positions;
  /// Whether operands gathered for a product are saved for the backward pass.
  bool keepGathered = false;
  /// Whether products are constrained; else propagation determines their
  /// layout.
  bool pins = true;

  const List &compute(Side side, Colour colour) const {
    if (bySide)
      return side == Side::In ? computeIn : computeOut;
    return colour == Colour::Chosen ? computeChosen : computeHidden;
  }
  const List &features(Colour colour) const {
    return colour == Colour::Chosen ? inner.features : outer.features;
  }
};

/// The scheme of `layout` over `axes` ("1d" has one axis), which follow the
/// axes that already split the batch and the positions. `sequence`: Megatron's
/// sequence parallelism on the axis of "1d".
TensorScheme makeScheme(mlir::MLIRContext *context, llvm::StringRef layout,
                        llvm::ArrayRef<std::string> axes,
                        llvm::ArrayRef<std::string> batchAxes,
                        llvm::ArrayRef<std::string> sequenceAxes, bool sequence,
                        bool keepGathered);

} // namespace cleave::strategy

#endif
