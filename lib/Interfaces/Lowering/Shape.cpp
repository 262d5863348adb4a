// Data movement, contractions and indexing.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

/// Like `multiplies`, but the log-sum-exp stays f32.
template <unsigned... Operands> static PrecisionRule attention() {
  PrecisionRule rule = multiplies<Operands...>();
  rule.wideResults = {1};
  return rule;
}

void cleave::lowering::attachShape(MLIRContext *context) {
  attachPlain<KernelClass::View, nn::BroadcastOp, nn::ReshapeOp,
              nn::TransposeOp, nn::SliceOp, nn::ConcatOp, nn::PadOp,
              nn::IotaOp>(context);
  attachPlain<KernelClass::Identity, nn::SaveOp, nn::RematerializeOp>(context);
  attachPlain<KernelClass::Library, multiplies<0, 1>, nn::EinsumOp,
              nn::GroupedDotOp, nn::GroupedOuterOp>(context);
  attachPlain<KernelClass::Library, attention<0, 1, 2>, nn::AttentionOp>(
      context);
  attachPlain<KernelClass::Library, multiplies<0, 1, 2, 3, 4>,
              nn::AttentionGradOp>(context);
  attachPlain<KernelClass::Library, nn::PositionInExpertOp>(context);
  attachPlain<KernelClass::Reduction, nn::ReduceOp>(context);
  attachPlain<KernelClass::Indexing, moves<0>, nn::GatherOp>(context);
  attachPlain<KernelClass::Indexing, nn::ScatterAddOp>(context);
  attach<nn::ArgMaxOp, KernelClass::Indexing, formula::argMax, choosesBy<0>>(
      context);
}
