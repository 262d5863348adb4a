// Lowers attention to library calls on strided views.

#include "SelectLibrary.h"
#include "Views.h"

#include "cleave/Dialect/NN/IR/Positions.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

/// Inserts the dimension g (query heads per KV head), of size 1 and stride 0,
/// into the view of a key or value.
static StridedView withGroup(StridedView view) {
  view.sizes.insert(view.sizes.begin() + 3, 1);
  view.strides.insert(view.strides.begin() + 3, 0);
  return view;
}

/// Returns the view of the log-sum-exp (lse), which has shape [b, n, g, s], in
/// the order that commands expect: [b, s, n, g, (feature)].
static SmallVector<int64_t> lseEntries(const StridedView &view) {
  ArrayRef<int64_t> s = view.strides;
  return {view.offset, s[0], s[3], s[1], s[2], 0};
}

namespace {
/// The optional operands that attention and its gradient have in common, with
/// their views.
struct Extra {
  Value value;
  SmallVector<int64_t> view;
};
struct Extras {
  Extra qPositions, kPositions, qSegments, kSegments, keyMask, bias;
  Extra dropoutKeys, qIndex, kIndex;
};
} // namespace

/// Returns the base of a tensor of shape [s] or [b, s] (a number per position)
/// with its view: offset, stride of the batch, stride of the position.
static Extra indexed(Value value) {
  StridedView view = traceView(value, /*throughBroadcasts=*/true);
  Extra extra = {view.base, {view.offset}};
  if (view.strides.size() == 1)
    extra.view.push_back(0);
  llvm::append_range(extra.view, view.strides);
  return extra;
}

/// Like `indexed`, for positions or segments. Converts them to i64 first, the
/// type that commands require.
static Extra wideIndexed(OpBuilder &b, Location loc, Value value) {
  RankedTensorType type = typeOf(value);
  if (!type.getElementType().isInteger(64))
    value = arith::ExtSIOp::create(b, loc, type.clone(b.getI64Type()), value);
  return indexed(value);
}

template <class Op> static Extras extrasOf(OpBuilder &b, Op op) {
  Location loc = op.getLoc();
  Extras extras;
  // By default, commands use consecutive positions.
  Value qPositions = op.getQPositions(), kPositions = op.getKPositions();
  if (qPositions && !(nn::countsUp(qPositions) && nn::countsUp(kPositions))) {
    extras.qPositions = wideIndexed(b, loc, qPositions);
    extras.kPositions = qPositions == kPositions
                            ? extras.qPositions
                            : wideIndexed(b, loc, kPositions);
  }
  if (op.getQSegments()) {
    extras.qSegments = wideIndexed(b, loc, op.getQSegments());
    extras.kSegments = op.getQSegments() == op.getKSegments()
                           ? extras.qSegments
                           : wideIndexed(b, loc, op.getKSegments());
  }
  if (op.getKeyMask())
    extras.keyMask = indexed(op.getKeyMask());
  if (op.getBias()) {
    // The bias has shape [b|1, n|1, g|1, s, t]; a dimension of size 1 is
    // broadcast.
    StridedView view = traceView(op.getBias(), /*throughBroadcasts=*/true);
    auto stride = [&](unsigned dim) {
      return view.sizes[dim] == 1 ? 0 : view.strides[dim];
    };
    extras.bias = {
        view.base,
        {view.offset, stride(0), stride(3), stride(1), stride(2), stride(4)}};
  }
  if (op.getDropoutKeys()) {
    // The dropout keys have shape [b, n, g] and are broadcast over queries and
    // features.
    StridedView view =
        traceView(op.getDropoutKeys(), /*throughBroadcasts=*/true);
    ArrayRef<int64_t> s = view.strides;
    extras.dropoutKeys = {view.base, {view.offset, s[0], 0, s[1], s[2], 0}};
    extras.qIndex = indexed(op.getQIndex());
    extras.kIndex = indexed(op.getKIndex());
  }
  return extras;
}

template <class Op> static SmallVector<int64_t> sizesOf(Op op) {
  ArrayRef<int64_t> q = typeOf(op.getQuery()).getShape();
  return {q[0], q[1], typeOf(op.getKey()).getDimSize(1),  q[2],
          q[3], q[4], typeOf(op.getValue()).getDimSize(3)};
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
      extras.qPositions.value, extras.kPositions.value, extras.qSegments.value,
      extras.kSegments.value, extras.keyMask.value, extras.bias.value,
      extras.dropoutKeys.value, extras.qIndex.value, extras.kIndex.value, sizes,
      op.getScale(), op.getCausal(), viewEntries(q), viewEntries(k),
      viewEntries(v), viewEntries(denseView(op.getResult())),
      lseEntries(denseView(op.getLse())), op.getWindow(), op.getSoftcap(),
      extras.qPositions.view, extras.kPositions.view, extras.qSegments.view,
      extras.kSegments.view, extras.keyMask.view, extras.bias.view,
      op.getDropout(), extras.dropoutKeys.view, extras.qIndex.view,
      extras.kIndex.view);
  op->replaceAllUsesWith(command->getResults());
  op.erase();
  return success();
}

/// If the gradients of query, key and value, possibly reshaped, are exactly the
/// inputs of a concatenation, returns this concatenation, and the views of the
/// three gradients in its result.
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
      extras.qPositions.value, extras.kPositions.value, extras.qSegments.value,
      extras.kSegments.value, extras.keyMask.value, extras.bias.value,
      extras.dropoutKeys.value, extras.qIndex.value, extras.kIndex.value, sizes,
      op.getScale(), op.getCausal(), viewEntries(dO), viewEntries(q),
      viewEntries(k), viewEntries(v), viewEntries(o), lseEntries(lse),
      viewEntries(grads[0]), viewEntries(withGroup(grads[1])),
      viewEntries(withGroup(grads[2])), into, op.getWindow(), op.getSoftcap(),
      extras.qPositions.view, extras.kPositions.view, extras.qSegments.view,
      extras.kSegments.view, extras.keyMask.view, extras.bias.view,
      op.getDropout(), extras.dropoutKeys.view, extras.qIndex.view,
      extras.kIndex.view);
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
