// FLOPs of every operation. A multiply-add counts as two, an elementwise
// operation or transcendental function as one per element. The counts serve to
// compare plans and to relate a run to the machine's peak, where contractions
// dominate.

#include "cleave/Interfaces/RowShare.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Positions.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/Models.h"
#include "cleave/program.h"

using namespace mlir;
using namespace cleave;

namespace {

int64_t elements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

template <typename Op, int64_t (*Flops)(Op)>
struct Model : CostInterface::ExternalModel<Model<Op, Flops>, Op> {
  int64_t getFlops(Operation *op) const { return Flops(cast<Op>(op)); }
};

template <typename Op, int64_t (*Flops)(Op)> void attach(MLIRContext *context) {
  Op::template attachInterface<Model<Op, Flops>>(*context);
}

/// `count` per element of the first result.
template <typename Op, int count> int64_t perElement(Op op) {
  return count * elements(op->getResult(0));
}

/// A gather reads only those rows of the indexed tensor that the indices
/// select.
struct GatherModel : CostInterface::ExternalModel<GatherModel, nn::GatherOp> {
  int64_t getFlops(Operation *) const { return 0; }
  int64_t getBytesMoved(Operation *op) const {
    auto gather = cast<nn::GatherOp>(op);
    return bytesOf(gather.getIndices().getType()) +
           2 * bytesOf(gather.getType());
  }
};

template <int count, typename... Ops> void attachAll(MLIRContext *context) {
  (attach<Ops, perElement<Ops, count>>(context), ...);
}

int64_t einsum(nn::EinsumOp op) {
  nn::EinsumOp::Labels labels = op.getLabels();
  int64_t contracted = 1;
  for (auto [dim, label] : llvm::enumerate(labels.lhs))
    if (labels.result.find(label) == std::string::npos)
      contracted *=
          cast<RankedTensorType>(op.getLhs().getType()).getDimSize(dim);
  return 2 * contracted * elements(op.getResult());
}

int64_t scan(nn::ScanOp op) {
  int64_t flops = 0;
  for (Operation &each : *op.getBody())
    if (auto cost = dyn_cast<CostInterface>(each))
      flops += cost.getFlops();
  return int64_t(op.getTrips()) * flops;
}

int64_t reduce(nn::ReduceOp op) { return elements(op.getInput()); }
int64_t argMax(nn::ArgMaxOp op) { return elements(op.getInput()); }
int64_t scatterAdd(nn::ScatterAddOp op) { return elements(op.getUpdates()); }
int64_t crossEntropy(nn::CrossEntropyOp op) {
  return 4 * elements(op.getLogits());
}

/// Counts two FLOPs for each multiply-add of each pair of a query and a key
/// that is not masked by position (by causality or a window), since the library
/// skips masked blocks. The number of pairs is exact if positions are
/// consecutive, or if queries and keys share one array of positions; otherwise
/// it is a mean. Masks by segment or by key do not reduce the number.
template <typename Op> int64_t attentionFlops(Op op, int64_t perPair) {
  ArrayRef<int64_t> q =
      cast<RankedTensorType>(op.getQuery().getType()).getShape();
  int64_t s = q[1],
          t = cast<RankedTensorType>(op.getKey().getType()).getDimSize(1);
  Value qPositions = op.getQPositions(), kPositions = op.getKPositions();
  bool known = !qPositions || qPositions == kPositions ||
               (nn::countsUp(qPositions) && nn::countsUp(kPositions));
  auto count = known ? program::attentionPairs : program::meanAttentionPairs;
  int64_t pairs = count(s, t, op.getCausal(), op.getWindow());
  return 2 * q[0] * q[2] * q[3] * pairs * perPair;
}

int64_t widthOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape().back();
}

int64_t attention(nn::AttentionOp op) {
  int64_t d = widthOf(op.getQuery()), e = widthOf(op.getValue());
  return attentionFlops(op, d + e);
}

int64_t attentionGrad(nn::AttentionGradOp op) {
  // Recomputed scores, dV, dP, dQ, dK.
  int64_t d = widthOf(op.getQuery()), e = widthOf(op.getValue());
  return attentionFlops(op, 3 * d + 2 * e);
}

/// The costs of grouped products (grouped GEMM), which multiply each row with
/// the matrix of an expert. An operation may have only a tile of the expert
/// matrices. FLOPs are counted for the rows whose expert is in the tile,
/// assuming that all experts are chosen equally often. Each matrix that a row
/// uses is read once.
template <typename Op>
struct GroupedModel : CostInterface::ExternalModel<GroupedModel<Op>, Op> {
  static int64_t rows(Op op) {
    auto share = op->template getAttrOfType<IntegerAttr>(kRowShareAttrName);
    return llvm::divideCeil(elements(op.getIds()), share ? share.getInt() : 1);
  }
  /// The matrices: [e, k, n], or with the last two dimensions swapped.
  static RankedTensorType matrices(Op op) {
    if constexpr (std::is_same_v<Op, nn::GroupedDotOp>)
      return op.getMatrices().getType();
    else
      return op.getType();
  }
  int64_t getFlops(Operation *op) const {
    auto grouped = cast<Op>(op);
    RankedTensorType type = matrices(grouped);
    return 2 * rows(grouped) * type.getDimSize(1) * type.getDimSize(2);
  }
  int64_t getBytesMoved(Operation *op) const {
    auto grouped = cast<Op>(op);
    RankedTensorType type = matrices(grouped);
    int64_t bytes = bytesOfOperandsAndResults(op);
    if (isa<nn::GroupedOuterOp>(op) || rows(grouped) >= type.getDimSize(0))
      return bytes;
    return bytes - bytesOf(type) +
           bytesOf(type) / type.getDimSize(0) * rows(grouped);
  }
};

/// Counts the FLOPs of a convolution: two for each pair of a filter element and
/// an output position, in all groups.
template <typename Op> int64_t convolution(Op op, Value filter, Value output) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(filter.getType()).getShape();
  int64_t perFeature = 2;
  for (int64_t size : shape.drop_front())
    perFeature *= size;
  return perFeature * elements(output);
}
int64_t conv(nn::ConvOp op) {
  return convolution(op, op.getFilter(), op.getResult());
}
int64_t convInputGrad(nn::ConvInputGradOp op) {
  return convolution(op, op.getFilter(), op.getCotangent());
}
int64_t convFilterGrad(nn::ConvFilterGradOp op) {
  return convolution(op, op.getResult(), op.getCotangent());
}

/// Counts the FLOPs of pooling: one for each element of each window.
template <typename Op> int64_t windows(Op op, Value output) {
  int64_t flops = elements(output);
  for (int64_t size : op.getWindow())
    flops *= size;
  return flops;
}
int64_t pool(nn::PoolOp op) { return windows(op, op.getResult()); }
int64_t poolGrad(nn::PoolGradOp op) { return windows(op, op.getCotangent()); }
int64_t topK(nn::TopKOp op) { return elements(op.getInput()) * op.getK(); }

} // namespace

void cleave::registerCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *c, arith::ArithDialect *,
                            math::MathDialect *, nn::NNDialect *) {
    attachAll<1, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
              arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp, math::PowFOp,
              math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp, math::SqrtOp,
              math::RsqrtOp, math::SinOp, math::CosOp, math::AbsFOp,
              math::FloorOp, math::CeilOp, math::RoundEvenOp>(c);
    // Integer operations, comparisons and casts are not floating-point
    // operations.
    attachAll<0, arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::DivSIOp,
              arith::FloorDivSIOp, arith::RemSIOp, arith::AndIOp, arith::OrIOp,
              arith::XOrIOp, arith::MaxSIOp, arith::MinSIOp, arith::CmpFOp,
              arith::CmpIOp, arith::SelectOp, arith::ExtFOp, arith::TruncFOp,
              arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::ExtSIOp,
              arith::ExtUIOp, arith::TruncIOp>(c);
    attachAll<0, nn::BroadcastOp, nn::ReshapeOp, nn::TransposeOp, nn::SliceOp,
              nn::ConcatOp, nn::PadOp, nn::IotaOp, nn::SaveOp,
              nn::RematerializeOp, nn::PositionInExpertOp, nn::CheckIndexOp>(c);
    attachAll<1, nn::DropoutOp>(c);
    attachAll<3, nn::RotaryOp, nn::CrossEntropyGradOp>(c);
    attachAll<4, nn::SoftmaxOp, nn::SigmoidOp, nn::RmsNormOp, nn::SgdOp>(c);
    attachAll<8, nn::GeluOp, nn::LayerNormOp, nn::RmsNormGradOp>(c);
    attachAll<12, nn::GeluGradOp, nn::LayerNormGradOp, nn::AdamWOp>(c);
    nn::GatherOp::attachInterface<GatherModel>(*c);
    attach<nn::EinsumOp, einsum>(c);
    attach<nn::ScanOp, scan>(c);
    attach<nn::ReduceOp, reduce>(c);
    attach<nn::ArgMaxOp, argMax>(c);
    attach<nn::ScatterAddOp, scatterAdd>(c);
    attach<nn::CrossEntropyOp, crossEntropy>(c);
    attach<nn::ConvOp, conv>(c);
    attach<nn::ConvInputGradOp, convInputGrad>(c);
    attach<nn::ConvFilterGradOp, convFilterGrad>(c);
    attach<nn::PoolOp, pool>(c);
    attach<nn::PoolGradOp, poolGrad>(c);
    attach<nn::TopKOp, topK>(c);
    attach<nn::AttentionOp, attention>(c);
    attach<nn::AttentionGradOp, attentionGrad>(c);
    nn::GroupedDotOp::attachInterface<GroupedModel<nn::GroupedDotOp>>(*c);
    nn::GroupedOuterOp::attachInterface<GroupedModel<nn::GroupedOuterOp>>(*c);
  });
  // pipe.sum_stages, a sum over pipeline stages, needs no FLOPs within a stage.
  registry.addExtension(+[](MLIRContext *c, pipe::PipeDialect *) {
    attachAll<0, pipe::SumStagesOp>(c);
  });
}
