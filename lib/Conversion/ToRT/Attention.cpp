// Attention as library calls on strided views.

#include "SelectLibrary.h"
#include "Views.h"

using namespace mlir;
using namespace cleave;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Five strides from four: key and value have no group.
static StridedView withGroup(StridedView view) {
  view.sizes.insert(view.sizes.begin() + 3, 1);
  view.strides.insert(view.strides.begin() + 3, 0);
  return view;
}

/// lse is [b, n, g, s]; commands want [b, s, n, g, (feature)].
static SmallVector<int64_t> lseEntries(const StridedView &view) {
  ArrayRef<int64_t> s = view.strides;
  return {view.offset, s[0], s[3], s[1], s[2], 0};
}

namespace {
/// The optional operands that attention and its derivative share.
struct Extras {
  Value qPositions, kPositions, mask;
  SmallVector<int64_t> qView, kView, maskView;
  rt::Mask kind = rt::Mask::None;
};
} // namespace

/// Positions as i64, [s] or [b, s], and their view [offset, batch, position].
static Value positions(OpBuilder &b, Location loc, Value value,
                       SmallVectorImpl<int64_t> &entries) {
  RankedTensorType type = typeOf(value);
  if (!type.getElementType().isInteger(64))
    value = arith::ExtSIOp::create(b, loc, type.clone(b.getI64Type()), value);
  StridedView view = traceView(value, /*throughBroadcasts=*/true);
  entries.assign({view.offset});
  if (view.strides.size() == 1)
    entries.push_back(0);
  llvm::append_range(entries, view.strides);
  return view.base;
}

/// Key mask and bias become one mask. Together they are added up, which takes
/// the memory of a bias of all samples.
template <class Op> static Extras extrasOf(OpBuilder &b, Op op) {
  Location loc = op.getLoc();
  Extras extras;
  if (op.getQPositions()) {
    extras.qPositions = positions(b, loc, op.getQPositions(), extras.qView);
    extras.kPositions = positions(b, loc, op.getKPositions(), extras.kView);
  }
  Value mask = op.getKeyMask(), bias = op.getBias();
  if (mask && bias) {
    RankedTensorType type = typeOf(bias);
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = typeOf(mask).getDimSize(0);
    RankedTensorType wide = type.clone(shape);
    // Drop the sizes of 1 that repeat, then spread over the whole bias.
    SmallVector<int64_t> kept, dims;
    for (auto [dim, size] : llvm::enumerate(type.getShape()))
      if (size != 1 || shape[dim] == 1) {
        kept.push_back(size);
        dims.push_back(dim);
      }
    Value spread = b.createOrFold<nn::BroadcastOp>(
        loc, wide, b.createOrFold<nn::ReshapeOp>(loc, type.clone(kept), bias),
        dims);
    Value seen = b.createOrFold<nn::BroadcastOp>(loc, wide.clone(b.getI1Type()),
                                                 mask, ArrayRef<int64_t>{0, 4});
    Value hidden =
        nn::createSplat(b, loc, wide, -std::numeric_limits<double>::infinity());
    bias = arith::SelectOp::create(b, loc, seen, spread, hidden);
    mask = nullptr;
  }
  if (mask) {
    StridedView view = traceView(mask, /*throughBroadcasts=*/true);
    extras.mask = view.base;
    extras.maskView = {view.offset, view.strides[0], 0, 0, 0, view.strides[1]};
    extras.kind = rt::Mask::Boolean;
  } else if (bias) {
    // [b|1, n|1, g|1, s, t]: a size of 1 repeats.
    StridedView view = traceView(bias, /*throughBroadcasts=*/true);
    auto stride = [&](unsigned dim) {
      return view.sizes[dim] == 1 ? 0 : view.strides[dim];
    };
    extras.mask = view.base;
    extras.maskView = {view.offset, stride(0), stride(3),
                       stride(1),   stride(2), stride(4)};
    extras.kind = rt::Mask::Additive;
  }
  return extras;
}

template <class Op> static SmallVector<int64_t> sizesOf(Op op) {
  ArrayRef<int64_t> q = typeOf(op.getQuery()).getShape();
  return {q[0], q[1], typeOf(op.getKey()).getDimSize(1),  q[2],
          q[3], q[4], typeOf(op.getValue()).getDimSize(3)};
}

/// Sets what the two commands have in common beside views.
template <class Op> static void setExtras(Op command, const Extras &extras) {
  if (extras.qPositions) {
    command.setQPositionsView(extras.qView);
    command.setKPositionsView(extras.kView);
  }
  if (extras.mask) {
    command.setMaskView(extras.maskView);
    command.setMaskKind(extras.kind);
  }
}

static LogicalResult refuseEmpty(Operation *op, ArrayRef<int64_t> sizes) {
  if (llvm::all_of(sizes, [](int64_t size) { return size > 0; }))
    return success();
  return op->emitOpError("has a dimension of size 0");
}

LogicalResult cleave::selectAttention(nn::AttentionOp op) {
  OpBuilder b(op);
  SmallVector<int64_t> sizes = sizesOf(op);
  if (failed(refuseEmpty(op, sizes)))
    return failure();
  Extras extras = extrasOf(b, op);
  StridedView q = traceView(op.getQuery()),
              k = withGroup(traceView(op.getKey())),
              v = withGroup(traceView(op.getValue()));
  auto command = rt::AttentionOp::create(
      b, op.getLoc(), op.getResultTypes(), q.base, k.base, v.base,
      extras.qPositions, extras.kPositions, extras.mask, sizes, op.getScale(),
      op.getCausal(), viewEntries(q), viewEntries(k), viewEntries(v),
      viewEntries(denseView(op.getResult())),
      lseEntries(denseView(op.getLse())));
  setExtras(command, extras);
  op->replaceAllUsesWith(command->getResults());
  op.erase();
  return success();
}

/// The concatenation whose inputs are the three gradients, reshaped perhaps,
/// and nothing else; their views in its result.
static nn::ConcatOp sharedBuffer(nn::AttentionGradOp op,
                                 SmallVectorImpl<StridedView> &views) {
  nn::ConcatOp concat;
  views.resize(3);
  SmallPtrSet<Operation *, 3> inputs;
  for (unsigned index = 0; index < 3; ++index) {
    Value gradient = op->getResult(index), value = gradient;
    nn::ConcatOp user;
    while (value.hasOneUse() && !user) {
      Operation *next = *value.user_begin();
      user = dyn_cast<nn::ConcatOp>(next);
      if (!user && !isa<nn::ReshapeOp>(next))
        return {};
      if (!user)
        value = next->getResult(0);
    }
    if (!user || (concat && user != concat))
      return {};
    concat = user;
    ArrayRef<int64_t> shape = typeOf(value).getShape();
    SmallVector<int64_t> strides =
        denseStrides(typeOf(concat.getResult()).getShape());
    int64_t offset = 0;
    for (Value input : concat.getInputs()) {
      if (input == value)
        break;
      offset += typeOf(input).getDimSize(concat.getDim());
    }
    offset *= strides[concat.getDim()];
    auto own = reshapeStrides(shape, strides, typeOf(gradient).getShape());
    if (!own)
      return {};
    views[index] = {Value(), offset,
                    SmallVector<int64_t>(typeOf(gradient).getShape()), *own};
  }
  return concat && concat.getInputs().size() == 3 ? concat : nullptr;
}

LogicalResult cleave::selectAttentionGrad(nn::AttentionGradOp op) {
  OpBuilder b(op);
  SmallVector<int64_t> sizes = sizesOf(op);
  if (failed(refuseEmpty(op, sizes)))
    return failure();
  Extras extras = extrasOf(b, op);
  StridedView dO = traceView(op.getCotangent()), q = traceView(op.getQuery()),
              k = withGroup(traceView(op.getKey())),
              v = withGroup(traceView(op.getValue())),
              o = traceView(op.getOutput()), lse = traceView(op.getLse());
  SmallVector<StridedView> grads;
  SmallVector<Type> types(op.getResultTypes());
  SmallVector<int64_t> into = {0, 1, 2};
  nn::ConcatOp concat = sharedBuffer(op, grads);
  if (concat) {
    types = {concat.getType()};
    into = {0, 0, 0};
  } else {
    grads.clear();
    for (Value result : op->getResults())
      grads.push_back(denseView(result));
  }
  auto command = rt::AttentionGradOp::create(
      b, op.getLoc(), types, dO.base, q.base, k.base, v.base, o.base, lse.base,
      extras.qPositions, extras.kPositions, extras.mask, sizes, op.getScale(),
      op.getCausal(), viewEntries(dO), viewEntries(q), viewEntries(k),
      viewEntries(v), viewEntries(o), lseEntries(lse), viewEntries(grads[0]),
      viewEntries(withGroup(grads[1])), viewEntries(withGroup(grads[2])), into);
  setExtras(command, extras);
  if (!concat) {
    op->replaceAllUsesWith(command->getResults());
    op.erase();
    return success();
  }
  concat.getResult().replaceAllUsesWith(command->getResult(0));
  for (Value input : SmallVector<Value>(concat.getInputs())) {
    if (concat)
      concat.erase();
    concat = nullptr;
    while (auto reshape = input.getDefiningOp<nn::ReshapeOp>()) {
      input = reshape.getInput();
      reshape.erase();
    }
  }
  op.erase();
  return success();
}
