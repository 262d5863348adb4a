// Emits the loops of a kernel: rows, columns, lanes and scattered updates.

#include "Emitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// Returns the width in bits of the plan's widest floats (of its widest
/// integers if it has no floats), at least 32. The number of vector lanes
/// follows from it.
static unsigned widthOf(const KernelPlan &plan) {
  unsigned width = 0, integers = 0;
  auto see = [&](Type type) {
    Type element = getElementTypeOrSelf(type);
    unsigned &widest = isa<FloatType>(element) ? width : integers;
    widest = std::max(widest, element.getIntOrFloatBitWidth());
  };
  for (Value value : plan.outputs)
    see(value.getType());
  for (Value value : plan.arguments)
    if (cast<RankedTensorType>(value.getType()).getRank() > 0)
      see(value.getType());
  return std::max(width ? width : integers, 32u);
}

Emitter::Emitter(const KernelPlan &plan, ModuleOp module, Location loc,
                 StringRef name, unsigned vectorBits)
    : NodeEmitter(plan, loc, name, /*addressSpace=*/0), module(module) {
  lanes = std::max(vectorBits / widthOf(plan), 2u);
}

LogicalResult Emitter::run() {
  b.setInsertionPointToEnd(module.getBody());
  Type pointer = pointerType();
  Type i64 = b.getI64Type();
  func = func::FuncOp::create(
      b, name, b.getFunctionType({pointer, pointer, i64, i64}, {}));
  function = func;
  Block *entry = func.addEntryBlock();
  b.setInsertionPointToEnd(entry);
  for (size_t i = 0; i < plan.arguments.size() + plan.outputs.size(); ++i) {
    Value slot =
        LLVM::GEPOp::create(b, pointer, pointer, func.getArgument(1),
                            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    addresses.push_back(LLVM::LoadOp::create(b, pointer, slot));
  }
  scopes.push_back(std::make_unique<Scope>(0, entry, nullptr));
  allocateBuffers();
  switch (plan.shape) {
  case KernelPlan::Shape::Flat:
    emitFlat();
    break;
  case KernelPlan::Shape::Rows:
    emitRows();
    break;
  case KernelPlan::Shape::Scatter:
    emitScatter();
    break;
  }
  b.setInsertionPointToEnd(entry);
  func::ReturnOp::create(b);
  return success();
}

void Emitter::emitRows() {
  auto loop = beginFor(func.getArgument(2), func.getArgument(3),
                       constantIndex(1), plan.row->loops, {});
  loopValues[plan.row->loop] = loop.getInductionVar();
  for (auto [number, columnLoop] : llvm::enumerate(plan.loops)) {
    loopNumber = number;
    Value begin = constantIndex(0);
    int64_t size = columnLoop.columns->lane->size;
    emitColumnLoop(columnLoop, {begin, constantIndex(size), size});
  }
  // All values are computed before any store, because a store to one result may
  // overwrite an argument that another result depends on.
  for (const Store &target : plan.rowStores)
    emit(target.value);
  for (const Store &target : plan.rowStores)
    store(target, 0);
  endFor(loop, {});
}

void Emitter::emitFlat() {
  Value block = constantIndex(plan.block);
  int64_t elements = plan.columnSpaces.front().count;
  Value begin = arith::MulIOp::create(b, func.getArgument(2), block);
  Value end = arith::MulIOp::create(b, func.getArgument(3), block);
  end = arith::MinSIOp::create(b, end, constantIndex(elements));
  for (const ColumnLoop &loop : plan.loops)
    emitColumnLoop(loop, {begin, end});
}

/// Returns how many vectors one iteration of the loop computes. Several vectors
/// hide the latency of sums, but make the code larger.
int Emitter::chooseCopies(const ColumnLoop &loop) {
  int work = 0;
  bool reduces = !loop.reductions.empty();
  uint64_t within = loop.columns->lane->loops;
  for (const Node &node : plan.nodes) {
    if (node.kind == Node::Kind::Reduced && !node.reduction->perRow())
      reduces = true;
    if (!(node.loops & within))
      continue;
    bool heavy = node.kind == Node::Kind::Compute &&
                 isa<math::MathDialect>(node.op->getDialect());
    work += heavy ? 8 : 1;
  }
  if (work <= 12)
    return reduces ? 4 : 2;
  return work <= 30 && reduces ? 2 : 1;
}

void Emitter::emitColumnLoop(const ColumnLoop &loop, Range range) {
  copyCount = chooseCopies(loop);
  SmallVector<Value> accumulators;
  for (const Reduction *reduction : loop.reductions)
    for (int copy = 0; copy < copyCount; ++copy) {
      auto op = reduction->op;
      accumulators.push_back(
          identity(op.getCombiner(), vectorOf(reduction->input->type)));
    }

  const IndexVar *outer = loop.columns->outer;
  if (outer->size > 1) {
    auto outerLoop = beginFor(constantIndex(0), constantIndex(outer->size),
                              constantIndex(1), outer->loops, accumulators);
    loopValues[outer->loop] = outerLoop.getInductionVar();
    accumulators.assign(outerLoop.getRegionIterArgs().begin(),
                        outerLoop.getRegionIterArgs().end());
    emitLanes(loop, range, accumulators);
    endFor(outerLoop, accumulators);
    accumulators.assign(outerLoop.getResults().begin(),
                        outerLoop.getResults().end());
  } else {
    emitLanes(loop, range, accumulators);
  }

  for (auto [number, reduction] : llvm::enumerate(loop.reductions)) {
    auto op = reduction->op;
    ArrayRef<Value> copies =
        ArrayRef(accumulators).slice(number * copyCount, copyCount);
    Value total = copies[0];
    for (Value other : copies.drop_front())
      total = combine(op.getCombiner(), total, other);
    total = horizontal(op.getCombiner(), total);
    scopeOf(reduction->outcome->loops).values[{reduction->outcome, 0}] = total;
  }
}

/// Emits the loop over the columns in three parts: one that computes
/// `copyCount` vectors per iteration, one with a vector per iteration, and a
/// masked vector for the remaining columns.
void Emitter::emitLanes(const ColumnLoop &loop, Range range,
                        SmallVector<Value> &accumulators) {
  lane = loop.columns->lane;
  Value position = range.begin;
  auto part = [&](int copies, bool masked) {
    int64_t step = copies * lanes;
    Value end = range.end;
    if (range.staticSize >= 0) {
      int64_t begin = 0; // the end of the parts that are already emitted
      if (copies < copyCount)
        begin = range.staticSize / (copyCount * lanes) * (copyCount * lanes);
      if (masked)
        begin = range.staticSize / lanes * lanes;
      int64_t stop = masked ? range.staticSize : range.staticSize / step * step;
      if (stop <= begin)
        return;
      position = constantIndex(begin);
      end = constantIndex(stop);
    } else if (!masked) {
      Value length = arith::SubIOp::create(b, range.end, position);
      Value steps = arith::DivUIOp::create(b, length, constantIndex(step));
      end = arith::AddIOp::create(
          b, position, arith::MulIOp::create(b, steps, constantIndex(step)));
    }
    auto laneLoop =
        beginFor(position, end, constantIndex(step), lane->loops, accumulators);
    loopValues[lane->loop] = laneLoop.getInductionVar();
    accumulators.assign(laneLoop.getRegionIterArgs().begin(),
                        laneLoop.getRegionIterArgs().end());
    if (masked) {
      Value last = arith::SubIOp::create(b, end, laneLoop.getInductionVar());
      auto steps = llvm::to_vector(llvm::seq<int64_t>(lanes));
      Value numbers = arith::ConstantOp::create(
          b, DenseElementsAttr::get(vectorOf(b.getI64Type()),
                                    ArrayRef<int64_t>(steps)));
      mask = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, numbers,
                                   splat(last));
    }
    emitLaneBody(loop, copies, accumulators);
    mask = nullptr;
    endFor(laneLoop, accumulators);
    accumulators.assign(laneLoop.getResults().begin(),
                        laneLoop.getResults().end());
    position = end;
  };
  int copies = copyCount;
  if (copies > 1)
    part(copies, false);
  part(1, false);
  part(1, true);
  lane = nullptr;
}

void Emitter::emitLaneBody(const ColumnLoop &loop, int copies,
                           SmallVector<Value> &accumulators) {
  int saved = copyCount;
  copyCount = copies;
  // All values are computed before any store, because a store to one result may
  // overwrite an argument that another result depends on.
  for (int copy = 0; copy < copies; ++copy) {
    for (const Reduction *reduction : loop.reductions)
      emit(reduction->input, copy);
    for (const kernels::Store &target : loop.stores)
      emit(target.value, copy);
  }
  for (auto [number, reduction] : llvm::enumerate(loop.reductions)) {
    auto op = reduction->op;
    for (int copy = 0; copy < copies; ++copy) {
      Value &accumulator = accumulators[number * saved + copy];
      Value sum = combine(op.getCombiner(), accumulator,
                          emitLanes(reduction->input, copy));
      if (mask)
        sum = arith::SelectOp::create(b, mask, sum, accumulator);
      accumulator = sum;
    }
  }
  for (int copy = 0; copy < copies; ++copy) {
    for (const kernels::Store &target : loop.stores)
      store(target, copy);
    for (const Node &node : plan.nodes)
      if (auto found = plan.buffers.find(&node);
          found != plan.buffers.end() && found->second.first == loopNumber &&
          found->second.result < 0)
        storeBuffer(found->second, copy);
  }
  copyCount = saved;
}

/// A scatter adds rows (updates) to the rows of a result, the table. Clears the
/// table's rows [begin, end), then adds all updates of these rows, in order.
void Emitter::emitScatter() {
  const auto &scatter = plan.scatter;
  Value begin = func.getArgument(2), end = func.getArgument(3);
  clearRows(begin, end);

  auto updates = beginFor(constantIndex(0), constantIndex(scatter.update->size),
                          constantIndex(1), scatter.update->loops, {});
  loopValues[scatter.update->loop] = updates.getInductionVar();
  Value target = castIndex(emit(scatter.target), b.getI64Type());
  Value inside = arith::AndIOp::create(
      b, arith::CmpIOp::create(b, arith::CmpIPredicate::sge, target, begin),
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, target, end));
  // scf.for with zero or one iterations serves as a branch.
  Value once = arith::ExtUIOp::create(b, b.getI64Type(), inside);
  auto branch = beginFor(constantIndex(0), once, constantIndex(1), 0, {});
  auto befores = beginFor(constantIndex(0), constantIndex(scatter.before->size),
                          constantIndex(1), scatter.before->loops, {});
  loopValues[scatter.before->loop] = befores.getInductionVar();
  addUpdate(tableRow(target, befores.getInductionVar()));
  endFor(befores, {});
  endFor(branch, {});
  endFor(updates, {});
}

/// Returns the index of the first element of row `row` of the table. `before`
/// is the index in the dimensions before the rows.
Value Emitter::tableRow(Value row, Value before) {
  const auto &scatter = plan.scatter;
  Value index = arith::AddIOp::create(
      b, row, arith::MulIOp::create(b, before, constantIndex(scatter.rows)));
  return arith::MulIOp::create(b, index, constantIndex(scatter.columns.count));
}

void Emitter::clearRows(Value begin, Value end) {
  const auto &scatter = plan.scatter;
  Type element = scatter.value->type;
  int64_t rowBytes =
      scatter.columns.count * element.getIntOrFloatBitWidth() / 8;
  Value length = arith::MulIOp::create(b, arith::SubIOp::create(b, end, begin),
                                       constantIndex(rowBytes));
  auto clear = beginFor(constantIndex(0), constantIndex(scatter.before->size),
                        constantIndex(1), 0, {});
  Value first = tableRow(begin, clear.getInductionVar());
  LLVM::MemsetOp::create(
      b, address(addresses[plan.arguments.size()], first, element),
      constantOf(b.getI8Type(), 0), length, /*isVolatile=*/false);
  endFor(clear, {});
}

/// Adds the current update to the table's row that begins at element `row`.
void Emitter::addUpdate(Value row) {
  lane = plan.scatter.columns.lane;
  int64_t columns = plan.scatter.columns.count, whole = columns / lanes * lanes;
  if (whole > 0)
    addColumns(row, 0, whole);
  if (whole < columns)
    addColumns(row, whole, columns);
  lane = nullptr;
}

/// Adds columns [from, to) of the current update, either in whole vectors or in
/// a single masked vector.
void Emitter::addColumns(Value row, int64_t from, int64_t to) {
  Type element = plan.scatter.value->type;
  unsigned alignment = element.getIntOrFloatBitWidth() / 8;
  auto loop = beginFor(constantIndex(from), constantIndex(to),
                       constantIndex(lanes), lane->loops, {});
  loopValues[lane->loop] = loop.getInductionVar();
  if ((to - from) % lanes != 0) {
    SmallVector<bool> bits;
    for (int64_t i = 0; i < lanes; ++i)
      bits.push_back(from + i < to);
    mask = arith::ConstantOp::create(
        b,
        DenseElementsAttr::get(vectorOf(b.getI1Type()), ArrayRef<bool>(bits)));
  }
  Value added = emitLanes(plan.scatter.value, 0);
  Value where =
      address(addresses[plan.arguments.size()],
              arith::AddIOp::create(b, row, loop.getInductionVar()), element);
  VectorType type = vectorOf(element);
  if (mask) {
    Value old = LLVM::MaskedLoadOp::create(b, type, where, mask,
                                           constantOf(type, 0), alignment);
    Value sum = combine(nn::Combiner::Sum, old, added);
    LLVM::MaskedStoreOp::create(b, sum, where, mask, alignment);
  } else {
    Value old = LLVM::LoadOp::create(b, type, where, alignment);
    Value sum = combine(nn::Combiner::Sum, old, added);
    LLVM::StoreOp::create(b, sum, where, alignment);
  }
  mask = nullptr;
  endFor(loop, {});
}
