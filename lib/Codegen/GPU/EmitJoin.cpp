// Combines values of several threads, by shuffles within warps and through
// shared memory between warps. Every thread combines in the same order, so that
// results are bitwise equal in all threads and all runs.

#include "GpuEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// The number of loads that a thread issues before it adds the first of them.
static constexpr int64_t kLoadsAtOnce = 8;
/// If a thread sums more terms than this, it sums blocks of terms first, for
/// accuracy.
static constexpr int64_t kLongSum = 128;

/// Returns the value of another thread of the warp, the one with this thread's
/// number XOR `offset`.
Value GpuEmitter::shuffle(Value value, int64_t offset) {
  auto exchange = [&](Value word) -> Value {
    return gpu::ShuffleOp::create(b, word, offset, kWarp, gpu::ShuffleMode::XOR)
        .getShuffleResult();
  };
  Type type = value.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  unsigned width = type.getIntOrFloatBitWidth();
  if (width == 32)
    return exchange(value);
  Type integer = b.getIntegerType(width);
  Value bits =
      type == integer ? value : arith::BitcastOp::create(b, integer, value);
  if (width < 32) {
    bits = exchange(arith::ExtUIOp::create(b, i32, bits));
    bits = arith::TruncIOp::create(b, integer, bits);
  } else {
    Value low = exchange(arith::TruncIOp::create(b, i32, bits));
    Value high = exchange(arith::TruncIOp::create(
        b, i32, arith::ShRUIOp::create(b, bits, constantIndex(32))));
    high = arith::ShLIOp::create(b, arith::ExtUIOp::create(b, i64, high),
                                 constantIndex(32));
    bits = arith::OrIOp::create(b, arith::ExtUIOp::create(b, i64, low), high);
  }
  return type == integer ? bits : arith::BitcastOp::create(b, type, bits);
}

Value GpuEmitter::workgroupBuffer(Type element, int64_t count) {
  auto space =
      gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({count}, storageOf(element),
                              MemRefLayoutAttrInterface{}, space);
  return func.addWorkgroupAttribution(type, b.getLoc());
}

void GpuEmitter::storeWorkgroup(Value value, Value buffer, Value index) {
  Type element = value.getType();
  if (storageOf(element) != element)
    value = arith::ExtUIOp::create(b, storageOf(element), value);
  index = arith::IndexCastUIOp::create(b, b.getIndexType(), index);
  memref::StoreOp::create(b, value, buffer, index);
}

Value GpuEmitter::loadWorkgroup(Type element, Value buffer, Value index) {
  index = arith::IndexCastUIOp::create(b, b.getIndexType(), index);
  Value value = memref::LoadOp::create(b, buffer, index);
  if (storageOf(element) != element)
    value = arith::TruncIOp::create(b, element, value);
  return value;
}

void GpuEmitter::joinRow(ArrayRef<nn::Combiner> combiners,
                         Accumulators &values) {
  auto within = [&](int64_t threads) {
    for (int64_t offset = threads / 2; offset >= 1; offset /= 2)
      for (auto [combiner, value] : llvm::zip_equal(combiners, values))
        value = combine(combiner, value, shuffle(value, offset));
  };
  int64_t threads = launch.threads;
  within(std::min(threads, kWarp));
  if (threads <= kWarp)
    return;
  // Each warp writes one value; then every warp combines all of them.
  int64_t warps = threads / kWarp;
  SmallVector<Value> buffers;
  for (Value value : values)
    buffers.push_back(workgroupBuffer(value.getType(), warps * launch.rows));
  Value base = arith::MulIOp::create(b, rowInBlock, constant32(warps));
  Value first = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                      remainder(inRow, kWarp), constant32(0));
  Value own = arith::AddIOp::create(b, base, quotient(inRow, kWarp));
  ifTrue(first, [&] {
    for (auto [value, buffer] : llvm::zip_equal(values, buffers))
      storeWorkgroup(value, buffer, own);
  });
  gpu::BarrierOp::create(b);
  Value other = arith::AddIOp::create(b, base, remainder(inRow, warps));
  for (auto [value, buffer] : llvm::zip_equal(values, buffers))
    value = loadWorkgroup(value.getType(), buffer, other);
  within(warps);
}

/// Emits the loop of a sequential reduction, in which one thread iterates over
/// the terms. If several threads share the reduction, each of them iterates
/// over every launch.sequence-th term. An iteration of the loop computes
/// several terms, so that their loads overlap.
SmallVector<Value> GpuEmitter::runSequence(const IndexVar *sequence,
                                           ArrayRef<Value> start,
                                           SequenceStep step,
                                           SequenceJoin join) {
  int64_t count = sequence->size, stride = launch.sequence;
  if (stride == 1 && count > kLongSum)
    return NodeEmitter::runSequence(sequence, start, step, join);
  int64_t loads = 0;
  for (const Node &node : plan.nodes)
    loads += node.kind == Node::Kind::Load && node.loops & sequence->loops;
  int64_t unrolled = std::clamp<int64_t>(
      kLoadsAtOnce / std::max<int64_t>(1, loads * copyCount), 1, 8);
  int64_t rounds = count / (stride * unrolled);
  int64_t done = rounds * stride * unrolled;
  Value first = wide(share);
  SmallVector<Value> sums(start);
  if (rounds > 0) {
    auto loop = beginFor(constantIndex(0), constantIndex(done),
                         constantIndex(stride * unrolled), 0, sums);
    sums.assign(loop.getRegionIterArgs().begin(),
                loop.getRegionIterArgs().end());
    Value index = arith::AddIOp::create(b, loop.getInductionVar(), first);
    Block *block = scopes.back()->block;
    for (int64_t i = 0; i < unrolled; ++i) {
      scopes.push_back(std::make_unique<Scope>(
          scopes.back()->loops | sequence->loops, block, nullptr));
      sums = step(arith::AddIOp::create(b, index, constantIndex(i * stride)),
                  sums);
      scopes.pop_back();
    }
    endFor(loop, sums);
    sums.assign(loop.getResults().begin(), loop.getResults().end());
  }
  if (done == count)
    return sums;
  Value rest = arith::AddIOp::create(b, first, constantIndex(done));
  return stepSequence(sequence, rest, constantIndex(count), stride, sums, step);
}

/// If the terms of a sequential reduction are divided among several threads,
/// each thread iterates over its own terms, and this function then combines the
/// results of the threads in a tree. All of these threads get the total.
void GpuEmitter::joinSequence(ArrayRef<const Reduction *> group, int copies,
                              SmallVector<Value> &totals) {
  if (launch.sequence == 1)
    return;
  int64_t threads = launch.threads * launch.rows, block = launch.block();
  // Vectors are combined element by element.
  for (auto [number, total] : llvm::enumerate(totals)) {
    auto op = group[number / copies]->op;
    auto vector = dyn_cast<VectorType>(total.getType());
    int64_t count = vector ? lanes : 1;
    Type element = getElementTypeOrSelf(total.getType());
    Value result = total;
    for (int64_t i = 0; i < count; ++i) {
      Value value = vector ? vector::ExtractOp::create(b, total, i) : total;
      Value &buffer = sequenceBuffers[storageOf(element)];
      if (!buffer)
        buffer = workgroupBuffer(element, block);
      else // wait: other threads may still read the buffer
        gpu::BarrierOp::create(b);
      storeWorkgroup(value, buffer, thread);
      for (int64_t half = launch.sequence / 2; half >= 1; half /= 2) {
        gpu::BarrierOp::create(b);
        Value low = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, share,
                                          constant32(half));
        ifTrue(low, [&] {
          Value mine = loadWorkgroup(element, buffer, thread);
          Value other =
              loadWorkgroup(element, buffer, add32(thread, half * threads));
          storeWorkgroup(combine(op.getCombiner(), mine, other), buffer,
                         thread);
        });
      }
      gpu::BarrierOp::create(b);
      value = loadWorkgroup(element, buffer, remainder(thread, threads));
      result = vector ? vector::InsertOp::create(b, value, result, i) : value;
    }
    total = result;
  }
}
