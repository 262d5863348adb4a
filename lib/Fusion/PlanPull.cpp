// Creates the nodes that compute single elements of the values in a kernel.

#include "PlanBuilder.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

Node *PlanBuilder::pull(Value value, Index index, Node *guard) {
  Key key{value.getAsOpaquePointer(), guard, index.vec()};
  if (auto found = memo.find(key); found != memo.end())
    return found->second;
  Node *node = nullptr;
  Operation *op = value.getDefiningOp();
  auto constantOp = dyn_cast_or_null<arith::ConstantOp>(op);
  if (constantOp) {
    node = pullConstant(constantOp, index, guard);
  } else if (op && inside(op)) {
    node = pullOp(cast<OpResult>(value), index, guard);
  } else {
    RankedTensorType type = typeOf(value);
    plan.arguments.insert(value);
    if (guard && isInBounds(index, type.getShape()))
      guard = nullptr; // the index is in bounds, so the load needs no guard
    IndexExpr linear = plan.space.linearize(index, type.getShape());
    node = createAccess(Node::Kind::Load, type.getElementType(), linear, guard);
    node->source = llvm::find(plan.arguments, value) - plan.arguments.begin();
  }
  if (node)
    memo[key] = node;
  return node;
}

Node *PlanBuilder::pullConstant(arith::ConstantOp op, Index index,
                                Node *guard) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense)
    return fail("a constant that is not held in the program");
  Type type = dense.getElementType();
  if (dense.isSplat()) {
    Node *node = create(Node::Kind::Constant, type, 0, 0);
    node->value = dense.getSplatValue<Attribute>();
    return node;
  }
  IndexExpr linear =
      plan.space.linearize(index, typeOf(op.getResult()).getShape());
  Node *node = createAccess(Node::Kind::Table, type, linear, guard);
  node->value = dense;
  return node;
}

Node *PlanBuilder::pullOp(OpResult value, Index index, Node *guard) {
  Operation *op = value.getOwner();
  bool handled = false;
  Node *node = pullView(op, index, guard, handled);
  if (handled)
    return node;
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return pullReduce(reduce, index, guard);
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return pullGather(gather, index, guard);
  if (isa<arith::ArithDialect, math::MathDialect>(op->getDialect()))
    return pullCompute(value, index, guard);
  if (isa<nn::CheckIndexOp>(op)) {
    Node *node = pullCompute(value, index, guard);
    // Where the guard is false, elements may have any value.
    if (node && guard) {
      node->guard = guard;
      node->loops |= guard->loops;
      node->stage = std::max(node->stage, guard->stage);
    }
    return node;
  }
  return fail("operation '" + op->getName().getStringRef() +
              "' is not in the vocabulary of generated kernels");
}

/// Returns the node for an element of a view: the element of the view's operand
/// at a different index.
Node *PlanBuilder::pullView(Operation *op, Index index, Node *guard,
                            bool &handled) {
  handled = true;
  if (auto broadcast = dyn_cast<nn::BroadcastOp>(op)) {
    IndexVec source;
    for (int64_t dim : broadcast.getDims())
      source.push_back(index[dim]);
    return pull(broadcast.getInput(), source, guard);
  }
  if (auto reshape = dyn_cast<nn::ReshapeOp>(op)) {
    IndexExpr linear =
        plan.space.linearize(index, reshape.getType().getShape());
    return pull(
        reshape.getInput(),
        plan.space.delinearize(linear, typeOf(reshape.getInput()).getShape()),
        guard);
  }
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    IndexVec source(index.size());
    for (auto [dim, from] : llvm::enumerate(transpose.getPermutation()))
      source[from] = index[dim];
    return pull(transpose.getInput(), source, guard);
  }
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    IndexVec source;
    for (auto [position, offset, stride] :
         llvm::zip_equal(index, slice.getOffsets(), slice.getStrides()))
      source.push_back(position * stride + offset);
    return pull(slice.getInput(), source, guard);
  }
  if (isa<nn::SaveOp, nn::RematerializeOp>(op))
    return pull(op->getOperand(0), index, guard);
  if (auto iota = dyn_cast<nn::IotaOp>(op)) {
    const IndexExpr &position = index[iota.getDim()];
    Node *node = create(Node::Kind::Index, iota.getType().getElementType(),
                        position.loops(), stageOf(position));
    node->index = position;
    return node;
  }
  if (auto concat = dyn_cast<nn::ConcatOp>(op))
    return pullConcat(concat, index, guard);
  if (auto pad = dyn_cast<nn::PadOp>(op))
    return pullPad(pad, index, guard);
  if (isa<dist::AxisIndexOp, dist::TileOffsetOp>(op)) {
    Node *node = create(Node::Kind::RankOffset,
                        typeOf(op->getResult(0)).getElementType(), 0, 0);
    node->op = op;
    return node;
  }
  if (isa<dist::SliceOp>(op))
    return pullRankSlice(op, index, guard);
  handled = false;
  return nullptr;
}

/// Returns the node for an element of the rank's tile, which begins at an
/// offset that is only known at run time. Elements past the end of the
/// dimension are not read.
Node *PlanBuilder::pullRankSlice(Operation *op, Index index, Node *guard) {
  auto slice = cast<dist::SliceOp>(op);
  int64_t dim = slice.getDim();
  RankedTensorType whole = typeOf(slice.getInput());
  Type i64 = IntegerType::get(op->getContext(), 64);
  Node *offset = create(Node::Kind::RankOffset, i64, 0, 0);
  offset->op = op;
  IndexVec source(index);
  int64_t size = whole.getDimSize(dim);
  int64_t tile = typeOf(slice.getResult()).getDimSize(dim);
  dist::MeshAttr mesh = dist::MeshOp::lookup(op, slice.getMeshAttr()).getMesh();
  // On ranks after the last nonempty tile, the offset is beyond the end of the
  // dimension.
  int64_t span = dist::axesSize(mesh, slice.getAxes().getAxes()) * tile;
  source[dim] = source[dim] + dataIndex(offset, span);
  Node *inner = guard;
  if (span > size)
    inner = conjunction(guard, inRange(source[dim], 0, size));
  return pull(slice.getInput(), source, inner);
}

Node *PlanBuilder::pullConcat(nn::ConcatOp op, Index index, Node *guard) {
  int64_t dim = op.getDim();
  const IndexExpr &position = index[dim];
  // `pieces` has the concatenated inputs, with their offsets, that may contain
  // the element. Selects test which of them does. The last one needs no test,
  // since it is taken if all other tests fail.
  SmallVector<std::pair<Value, int64_t>> pieces;
  int64_t offset = 0;
  for (Value input : op.getInputs()) {
    int64_t size = typeOf(input).getDimSize(dim);
    if (size > 0 && position.max() >= offset && position.min() < offset + size)
      pieces.push_back({input, offset});
    offset += size;
  }
  Node *result = nullptr;
  for (auto [input, start] : llvm::reverse(pieces)) {
    int64_t end = start + typeOf(input).getDimSize(dim);
    IndexVec source(index);
    source[dim] = position - start;
    bool whole = pieces.size() == 1;
    Node *here = whole ? nullptr : inRange(position, start, end);
    Node *value = pull(input, source, conjunction(guard, here));
    if (!value)
      return nullptr;
    result = result ? select(here, value, result) : value;
  }
  if (result)
    return result;
  // If no concatenated input contains the element, the guard of the read is
  // always false, and any value will do.
  return guard ? constant(typeOf(op).getElementType(), 0)
               : fail("an empty concatenation is read");
}

Node *PlanBuilder::pullPad(nn::PadOp op, Index index, Node *guard) {
  RankedTensorType input = typeOf(op.getInput());
  IndexVec source(index);
  Node *inner = nullptr;
  for (auto [dim, low] : llvm::enumerate(op.getLow())) {
    source[dim] = source[dim] - low;
    int64_t size = input.getDimSize(dim);
    if (source[dim].min() < 0 || source[dim].max() >= size)
      inner = conjunction(inner, inRange(source[dim], 0, size));
  }
  Node *value = pull(op.getInput(), source, conjunction(guard, inner));
  if (!value || !inner)
    return value;
  return select(
      inner, value,
      constant(input.getElementType(), op.getValue().convertToDouble()));
}

Node *PlanBuilder::pullGather(nn::GatherOp op, Index index, Node *guard) {
  RankedTensorType table = typeOf(op.getTable());
  int64_t dim = op.getDim(), rank = typeOf(op.getIndices()).getRank();
  Node *position = pull(op.getIndices(), index.slice(dim, rank), guard);
  if (!position)
    return nullptr;
  Type i1 = IntegerType::get(op.getContext(), 1);
  Node *inTable =
      create(Node::Kind::InRange, i1, position->loops, position->stage);
  inTable->operands = {position};
  inTable->high = table.getDimSize(dim);
  IndexVec source(index.take_front(dim));
  source.push_back(dataIndex(position, table.getDimSize(dim)));
  llvm::append_range(source, index.drop_front(dim + rank));
  Node *value = pull(op.getTable(), source, guard);
  if (!value)
    return nullptr;
  return select(inTable, value, constant(table.getElementType(), 0));
}

Node *PlanBuilder::pullReduce(nn::ReduceOp op, Index index, Node *guard) {
  RankedTensorType input = typeOf(op.getInput());
  SmallVector<int64_t> kept, reduced;
  for (auto [dim, size] : llvm::enumerate(input.getShape()))
    (llvm::is_contained(op.getDims(), int64_t(dim)) ? reduced : kept)
        .push_back(size);
  int64_t count = 1;
  for (int64_t size : reduced)
    count *= size;
  IndexExpr position = plan.space.linearize(index, kept);
  if (position.loops() & sequenceLoops)
    return fail("a reduction inside another one");

  auto inputAt = [&](const IndexExpr &along) {
    IndexVec inner = plan.space.delinearize(along, reduced), source;
    auto keptIndex = index.begin();
    auto innerIndex = inner.begin();
    for (int64_t dim = 0; dim < input.getRank(); ++dim)
      source.push_back(llvm::is_contained(op.getDims(), dim) ? *innerIndex++
                                                             : *keptIndex++);
    return source;
  };

  int64_t keptCount = op.getType().getNumElements();
  if (plan.row && plan.row->size == keptCount && position == rowIndex()) {
    if (Node *outcome = rowReductions.lookup(op))
      return outcome;
    Columns *columns = columnsOf(count);
    Node *value = pull(op.getInput(), inputAt(columns->index()), nullptr);
    if (!value)
      return nullptr;
    Reduction &reduction = plan.reductions.emplace_back();
    reduction.op = op;
    reduction.input = value;
    reduction.columns = columns;
    Node *outcome = create(Node::Kind::Reduced, input.getElementType(),
                           plan.row->loops, value->stage + 1);
    outcome->reduction = &reduction;
    rowReductions[op] = outcome;
    reduction.outcome = outcome;
    loopOf(columns, value->stage).reductions.push_back(&reduction);
    return outcome;
  }

  const IndexVar *sequence = sequenceOf(count);
  Node *value =
      pull(op.getInput(), inputAt(IndexSpace::indexOf(sequence)), guard);
  if (!value)
    return nullptr;
  Reduction &reduction = plan.reductions.emplace_back();
  reduction.op = op;
  reduction.input = value;
  reduction.sequence = sequence;
  reduction.outcome = create(
      Node::Kind::Reduced, input.getElementType(),
      (value->loops | position.loops()) & ~sequence->loops, value->stage);
  reduction.outcome->reduction = &reduction;
  return reduction.outcome;
}

/// If `widen` extends a value that the same kernel rounded only for storage,
/// returns the value before rounding. The model's own roundings are preserved.
static Value beforeRounding(Operation *widen) {
  auto ext = dyn_cast<arith::ExtFOp>(widen);
  auto trunc = ext ? ext.getIn().getDefiningOp<arith::TruncFOp>() : nullptr;
  return trunc && trunc->hasAttr(nn::kStorageAttr) &&
                 trunc.getIn().getType() == ext.getType()
             ? trunc.getIn()
             : Value();
}

Node *PlanBuilder::pullCompute(OpResult value, Index index, Node *guard) {
  Operation *op = value.getOwner();
  if (Value exact = beforeRounding(op);
      exact && inside(op->getOperand(0).getDefiningOp()))
    return pull(exact, index, guard);
  SmallVector<Node *> operands;
  uint64_t loops = 0;
  int stage = 0;
  for (Value operand : op->getOperands()) {
    if (operand.getType().getTypeID() != value.getType().getTypeID() ||
        typeOf(operand).getShape() != typeOf(value).getShape())
      return fail("operation '" + op->getName().getStringRef() +
                  "' has operands of several shapes");
    Node *node = pull(operand, index, guard);
    if (!node)
      return nullptr;
    loops |= node->loops;
    stage = std::max(stage, node->stage);
    operands.push_back(node);
  }
  Node *node =
      create(Node::Kind::Compute, typeOf(value).getElementType(), loops, stage);
  node->op = op;
  node->result = value.getResultNumber();
  node->operands.assign(operands.begin(), operands.end());
  return node;
}
