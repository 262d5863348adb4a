// Describes library commands for the runtime.

#include "cleave/Memory/LibraryCalls.h"

#include "cleave/Support/ValueUtils.h"
#include "cleave/workspace.h"

using namespace mlir;
using namespace cleave;

FailureOr<program::DType> cleave::dtypeOf(Type element) {
  using program::DType;
  if (element.isF32())
    return DType::F32;
  if (element.isF64())
    return DType::F64;
  if (element.isBF16())
    return DType::BF16;
  if (element.isInteger(64))
    return DType::I64;
  if (element.isInteger(32))
    return DType::I32;
  if (element.isInteger(8))
    return DType::I8;
  if (element.isInteger(1))
    return DType::U8;
  return failure();
}

static program::DType dtype(Value value) {
  return *dtypeOf(typeOf(value).getElementType());
}

static program::MatrixRef matrix(ArrayRef<int64_t> view) {
  program::MatrixRef ref;
  ArrayRef<int64_t> strides = view.drop_front();
  ref.batchStrides.assign(strides.begin(), strides.end() - 2);
  ref.rowStride = strides[strides.size() - 2];
  ref.colStride = strides.back();
  return ref;
}

program::Gemm cleave::describe(rt::GemmOp op) {
  program::Gemm gemm;
  gemm.dtype = dtype(op.getA());
  gemm.wideResult = dtype(op.getC()) != gemm.dtype;
  gemm.batch.assign(op.getBatch().begin(), op.getBatch().end());
  gemm.m = op.getM();
  gemm.n = op.getN();
  gemm.k = op.getK();
  gemm.a = matrix(op.getAView());
  gemm.b = matrix(op.getBView());
  gemm.c = matrix(op.getCView());
  gemm.alpha = op.getAlpha().convertToDouble();
  gemm.accumulate = !!op.getAccumulator();
  gemm.activation = static_cast<program::Activation>(op.getActivation());
  // Addresses are not known yet; the arena number 0 only states that the
  // operand exists.
  if (op.getBias())
    gemm.bias.arena = 0;
  if (op.getKeepPreActivation())
    gemm.preActivation.arena = 0;
  if (op.getDerivativeAt())
    gemm.derivativeAt.arena = 0;
  if (op.getSums())
    gemm.sums.arena = 0;
  gemm.sumsOf = op.getSumsOf() == rt::SumsOf::A ? program::GemmOperand::A
                                                : program::GemmOperand::B;
  return gemm;
}

program::GroupedGemm cleave::describe(rt::GroupedGemmOp op) {
  program::GroupedGemm x;
  x.outer = op.getOuter();
  x.dtype = dtype(op.getLeft());
  x.wideResult = dtype(op.getResult()) != x.dtype;
  x.rows.assign(op.getRows().begin(), op.getRows().end());
  x.e = op.getE();
  x.k = op.getK();
  x.n = op.getN();
  auto rows = [](ArrayRef<int64_t> view) {
    program::RowsRef ref;
    ref.strides.assign(view.begin() + 1, view.end() - 1);
    ref.column = view.back();
    return ref;
  };
  x.a = rows(op.getLeftView());
  x.c = rows(op.getOuter() ? op.getOtherView() : op.getResultView());
  x.w = matrix(op.getOuter() ? op.getResultView() : op.getOtherView());
  x.ids.strides.assign(op.getIdsView().begin() + 1, op.getIdsView().end());
  return x;
}

static program::AttentionRef strided(ArrayRef<int64_t> view) {
  program::AttentionRef ref;
  llvm::copy(view.drop_front(), ref.strides.begin());
  return ref;
}

template <class Op> static program::Attention shared(Op op) {
  program::Attention x;
  x.dtype = dtype(op.getQ());
  x.b = op.size(0);
  x.qLen = op.size(1);
  x.kLen = op.size(2);
  x.n = op.size(3);
  x.g = op.size(4);
  x.d = op.size(5);
  x.dv = op.size(6);
  x.q = strided(op.getQView());
  x.k = strided(op.getKView());
  x.v = strided(op.getVView());
  x.o = strided(op.getOView());
  x.lse = strided(op.getLseView());
  x.scale = op.getScale().convertToDouble();
  x.softcap = op.getSoftcap().convertToDouble();
  x.causal = op.getCausal();
  x.window = op.getWindow();
  auto index = [](Value value, ArrayRef<int64_t> view) {
    program::IndexRef ref;
    if (value) {
      ref.buffer.arena = 0; // as above
      llvm::copy(view.drop_front(), ref.strides.begin());
    }
    return ref;
  };
  x.queryPositions = index(op.getQPositions(), op.getQPositionsView());
  x.keyPositions = index(op.getKPositions(), op.getKPositionsView());
  x.querySegments = index(op.getQSegments(), op.getQSegmentsView());
  x.keySegments = index(op.getKSegments(), op.getKSegmentsView());
  x.keyMask = index(op.getKeyMask(), op.getKeyMaskView());
  if (op.getBias()) {
    x.bias = strided(op.getBiasView());
    x.bias.buffer.arena = 0;
  }
  x.dropout = op.getDropout().convertToDouble();
  x.queryIndices = index(op.getQIndex(), op.getQIndexView());
  x.keyIndices = index(op.getKIndex(), op.getKIndexView());
  if (op.getDropoutKeys()) {
    x.dropoutKeys = strided(op.getDropoutKeysView());
    x.dropoutKeys.buffer.arena = 0;
  }
  return x;
}

program::Attention cleave::describe(rt::AttentionOp op) { return shared(op); }

program::Attention cleave::describe(rt::AttentionGradOp op) {
  program::Attention x = shared(op);
  x.backward = true;
  x.dO = strided(op.getDoView());
  x.dq = strided(op.getDqView());
  x.dk = strided(op.getDkView());
  x.dV = strided(op.getDvView());
  return x;
}

program::Convolution cleave::describe(rt::ConvOp op) {
  auto shapeOf = [](Value value) { return typeOf(value).getShape(); };
  auto list = [](ArrayRef<int64_t> values) {
    return std::vector<int64_t>(values.begin(), values.end());
  };
  ArrayRef<int64_t> input = shapeOf(op.getInput()),
                    filter = shapeOf(op.getFilter());
  program::Convolution x;
  x.kind = static_cast<program::ConvolutionKind>(op.getKind());
  x.dtype = dtype(op.getLhs());
  x.narrow = op.getNarrow();
  x.samples = input[0];
  x.groups = op.getGroups();
  x.channels = filter[1];
  x.features = filter[0] / x.groups;
  x.input = list(input.drop_front(2));
  x.kernel = list(filter.drop_front(2));
  x.output = list(shapeOf(op.getOutput()).drop_front(2));
  x.strides = list(op.getStrides());
  x.dilations = list(op.getDilations());
  x.low = list(op.getLow());
  x.high = list(op.getHigh());
  return x;
}

namespace {
using program::Device;

struct GemmModel
    : rt::LibraryCallOpInterface::ExternalModel<GemmModel, rt::GemmOp> {
  int64_t getWorkspace(Operation *op, Device device, int threads,
                       std::string &error) const {
    program::Gemm gemm = describe(cast<rt::GemmOp>(op));
    return device == Device::Cuda ? cuda::gemmWorkspace(gemm, error)
                                  : gemmWorkspace(gemm, threads, error);
  }
};

struct GroupedModel
    : rt::LibraryCallOpInterface::ExternalModel<GroupedModel,
                                                rt::GroupedGemmOp> {
  int64_t getWorkspace(Operation *op, Device device, int threads,
                       std::string &error) const {
    program::GroupedGemm grouped = describe(cast<rt::GroupedGemmOp>(op));
    return device == Device::Cuda ? cuda::groupedWorkspace(grouped, error)
                                  : groupedWorkspace(grouped, threads, error);
  }
};

template <class Op>
struct AttentionModel
    : rt::LibraryCallOpInterface::ExternalModel<AttentionModel<Op>, Op> {
  int64_t getWorkspace(Operation *op, Device device, int threads,
                       std::string &error) const {
    program::Attention attention = describe(cast<Op>(op));
    return device == Device::Cuda
               ? cuda::attentionWorkspace(attention, error)
               : attentionWorkspace(attention, threads, error);
  }
};

struct ConvModel
    : rt::LibraryCallOpInterface::ExternalModel<ConvModel, rt::ConvOp> {
  int64_t getWorkspace(Operation *op, Device device, int,
                       std::string &error) const {
    if (device == Device::Cuda)
      return cuda::convolutionWorkspace(describe(cast<rt::ConvOp>(op)), error);
    error = "only CUDA devices have it";
    return -1;
  }
};
} // namespace

void cleave::registerLibraryCalls(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, rt::RTDialect *) {
    rt::GemmOp::attachInterface<GemmModel>(*context);
    rt::GroupedGemmOp::attachInterface<GroupedModel>(*context);
    rt::AttentionOp::attachInterface<AttentionModel<rt::AttentionOp>>(*context);
    rt::AttentionGradOp::attachInterface<AttentionModel<rt::AttentionGradOp>>(
        *context);
    rt::ConvOp::attachInterface<ConvModel>(*context);
  });
}
