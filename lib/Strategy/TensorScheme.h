// Which mesh axes split what under the layouts of tensor parallelism:
// Megatron's in one dimension (Shoeybi et al., 2019), with its sequence
// parallelism (Korthikanti et al., 2022); 2D, SUMMA on a grid (Xu et al.,
// 2021); 2.5D (Wang et al., 2021); 3D (Bian et al., 2021).
//
// Dimensions of features have one of two colours: those that are worth a split
// in one dimension (heads, MLP width, vocabulary) are chosen, the others that
// stand across from them in a parameter (the hidden size) are hidden. Values
// with a chosen dimension are inner, values with a hidden one outer; a product
// with a parameter leads from outer to inner or back.

#ifndef CLEAVE_LIB_STRATEGY_TENSORSCHEME_H
#define CLEAVE_LIB_STRATEGY_TENSORSCHEME_H

#include "StrategyUtils.h"

namespace cleave::strategy {

enum class Colour { Hidden, Chosen };
/// Where a parameter's dimension stands in the first product that reads it:
/// summed over, or in the result.
enum class Side { In, Out };

struct TensorScheme {
  using List = llvm::SmallVector<dist::AxisRefAttr>;

  /// How values of one kind are placed.
  struct State {
    List batch, sequence, features;
  };
  State outer, inner;
  /// The batch of the function's inputs: what outer and inner have in common.
  List inputs;
  /// The batch while a product with a parameter is computed.
  List computeBatch;
  /// A parameter's dimension while a product with it is computed, by side in 2D
  /// and 2.5D, by colour elsewhere.
  bool bySide = false;
  List computeIn, computeOut, computeHidden, computeChosen;
  /// Parameters are stored split by these too, on the side `In`.
  List gathered;
  /// The axes that split the batch before those of the layout, and those that
  /// split the positions: of these, too, every rank has its own.
  List samples, positions;
  /// What is gathered for a product is kept for the backward pass.
  bool keepGathered = false;
  /// Whether products are pinned; where not, propagation finds them.
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

/// `axes` of `layout` ("1d": one), after the axes that split the batch and the
/// positions already. `sequence`: Megatron's sequence parallelism on the axis
/// of "1d".
TensorScheme makeScheme(mlir::MLIRContext *context, llvm::StringRef layout,
                        llvm::ArrayRef<std::string> axes,
                        llvm::ArrayRef<std::string> batchAxes,
                        llvm::ArrayRef<std::string> sequenceAxes, bool sequence,
                        bool keepGathered);

} // namespace cleave::strategy

#endif
