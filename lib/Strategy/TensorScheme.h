// Defines, for each layout of tensor parallelism, the mesh axes that split each
// dimension. The layouts are "1d" (Megatron; Shoeybi et al., 2019), optionally
// with Megatron's sequence parallelism (Korthikanti et al., 2022); "2d" (SUMMA
// on a grid; Xu et al., 2021); "2.5d" (Wang et al., 2021); and "3d" (Bian et
// al., 2021).
//
// The code uses these words: a feature dimension has one of two "colours". It
// is "chosen" if Megatron's layout splits it (heads, MLP width, vocabulary),
// and "hidden" if it is the other dimension of a parameter that has a chosen
// dimension (the hidden size). An "inner" value has a chosen dimension, an
// "outer" value a hidden one. A product with a parameter maps an outer value to
// an inner one, or the reverse.

#ifndef CLEAVE_LIB_STRATEGY_TENSORSCHEME_H
#define CLEAVE_LIB_STRATEGY_TENSORSCHEME_H

#include "StrategyUtils.h"

namespace cleave::strategy {

enum class Colour { Hidden, Chosen };
/// How the first matrix product that reads a parameter uses a dimension of the
/// parameter: the product contracts it (In), or its result has it (Out).
enum class Side { In, Out };

struct TensorScheme {
  using List = llvm::SmallVector<dist::AxisRefAttr>;

  /// The axes that split the batch, the positions and the features of a value
  /// between products: `outer` for values with a hidden dimension, `inner` for
  /// values with a chosen dimension.
  struct State {
    List batch, sequence, features;
  };
  State outer, inner;
  /// The axes that split the batch of the function's inputs. They are the axes
  /// that split the batch both in outer values (those with a hidden dimension)
  /// and in inner values (those with a chosen dimension).
  List inputs;
  /// The axes that split the batch during a product with a parameter.
  List computeBatch;
  /// Below are the axes that split each dimension of a parameter during a
  /// product. If `bySide` is true (2D and 2.5D), they depend on whether the
  /// product contracts the dimension (In) or has it in the result (Out). In the
  /// other layouts they depend on whether the dimension is hidden (the hidden
  /// size) or chosen (heads, MLP width, vocabulary).
  bool bySide = false;
  List computeIn, computeOut, computeHidden, computeChosen;
  /// Further axes that split parameters while they are stored, preferably along
  /// the dimension that products contract. Parameters are gathered over these
  /// axes before products.
  List gathered;
  /// The axes by which other strategies, such as data parallelism, split the
  /// batch (`samples`) and the positions (`positions`), so ranks along these
  /// axes have different data. If the tensor-parallel layout also splits the
  /// batch, its axes are minor to `samples`.
  List samples, positions;
  /// Whether operands that were gathered for a product of the forward pass are
  /// saved for the backward pass.
  bool keepGathered = false;
  /// Whether the layouts of products are fixed by constraints; if not,
  /// propagation determines them.
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

/// Returns the axes of the tensor-parallel layout `layout` ("1d", "2d", "2.5d"
/// or "3d") over the mesh axes `axes` ("1d" has one axis). `batchAxes` and
/// `sequenceAxes` are the axes by which other strategies already split the
/// batch and the positions. `sequence` selects Megatron's sequence parallelism
/// along the axis of "1d".
TensorScheme makeScheme(mlir::MLIRContext *context, llvm::StringRef layout,
                        llvm::ArrayRef<std::string> axes,
                        llvm::ArrayRef<std::string> batchAxes,
                        llvm::ArrayRef<std::string> sequenceAxes, bool sequence,
                        bool keepGathered);

} // namespace cleave::strategy

#endif
