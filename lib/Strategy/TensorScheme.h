// The mesh axes that split each dimension under the layouts of tensor
// parallelism: Megatron's in one dimension (Shoeybi et al., 2019), with its
// sequence parallelism (Korthikanti et al., 2022); 2D, SUMMA on a grid (Xu et
// al., 2021); 2.5D (Wang et al., 2021); 3D (Bian et al., 2021).
//
// A dimension of features is of one of two kinds, called colours in the code.
// Dimensions that Megatron's layout splits (heads, MLP width, vocabulary) are
// chosen. The other dimension of a parameter with a chosen dimension (the
// hidden size) is hidden. A value with a chosen dimension is called inner, one
// with a hidden dimension outer. A product with a parameter maps an outer value
// to an inner one, or the reverse.

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
  /// between products.
  struct State {
    List batch, sequence, features;
  };
  State outer, inner;
  /// The axes that split the batch of the function's inputs. They are the axes
  /// that split the batch both in outer values (those with a hidden dimension)
  /// and in inner values (those with a chosen dimension).
  List inputs;
  /// The batch axes during a product with a parameter.
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
  /// batch (`samples`) and the positions. If the tensor-parallel layout also
  /// splits the batch, its axes are minor to `samples`. Ranks along these axes
  /// have different data.
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
