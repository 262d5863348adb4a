// Movement, contractions and indexing.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

void cleave::lowering::attachShape(MLIRContext *context) {
  attachPlain<KernelClass::View, nn::BroadcastOp, nn::ReshapeOp,
              nn::TransposeOp, nn::SliceOp, nn::ConcatOp, nn::PadOp,
              nn::IotaOp>(context);
  attachPlain<KernelClass::Identity, nn::SaveOp, nn::RematerializeOp>(context);
  attachPlain<KernelClass::Library, nn::EinsumOp, nn::AttentionOp,
              nn::AttentionGradOp, nn::GroupedDotOp, nn::GroupedOuterOp,
              nn::PositionInExpertOp>(context);
  attachPlain<KernelClass::Reduction, nn::ReduceOp>(context);
  attachPlain<KernelClass::Indexing, nn::GatherOp, nn::ScatterAddOp>(context);
  attach<nn::ArgMaxOp, KernelClass::Indexing, formula::argMax>(context);
}
