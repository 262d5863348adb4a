// Memory access of a CPU kernel: masked vectors, and buffers on the stack.

#include "Emitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

Value Emitter::axisIndices() {
  // The first field of cleave_ctx is the address of axis_index.
  return LLVM::LoadOp::create(b, pointerType(), func.getArgument(0));
}

/// Reports an index that is out of range. The sixth field of cleave_ctx is the
/// address of two numbers, the table's number of rows and the index. If several
/// threads report an index, any of them may remain.
void Emitter::reportIndex(Value index, Value beyond, int64_t rows) {
  constexpr int64_t kIndexFault = 5;
  Type i64 = b.getI64Type();
  if (isa<VectorType>(index.getType())) {
    beyond = both(beyond, mask);
    // Selects one of the vector's indices that are out of range: valid indices
    // are replaced by 0, and then the maximum is taken.
    Value zero = constantOf(index.getType(), 0);
    index = vector::ReductionOp::create(
        b, vector::CombiningKind::MAXUI,
        arith::SelectOp::create(b, beyond, index, zero));
    beyond = vector::ReductionOp::create(b, vector::CombiningKind::OR, beyond);
  }
  auto branch = scf::IfOp::create(b, beyond, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value fault = LLVM::LoadOp::create(
      b, pointerType(),
      address(func.getArgument(0), constantIndex(kIndexFault), i64));
  auto store = [&](int64_t place, Value value) {
    LLVM::StoreOp::create(b, value, address(fault, constantIndex(place), i64),
                          /*alignment=*/8, /*isVolatile=*/false,
                          /*isNonTemporal=*/false, /*isInvariantGroup=*/false,
                          LLVM::AtomicOrdering::monotonic);
  };
  store(1, castIndex(index, i64));
  store(0, constantIndex(rows));
}

Value Emitter::createLaneLoad(const Node *node, int copy, Value base,
                              VectorType type) {
  unsigned alignment = bytesOf(node->type);
  Value needed = mask;
  if (node->guard)
    needed = both(needed, emitLanes(node->guard, copy));
  Value zero = constantOf(type, 0);
  if (isContiguous(node->index)) {
    Value where = address(base, emitLaneBase(node->index, copy), node->type);
    if (needed)
      return LLVM::MaskedLoadOp::create(b, type, where, needed, zero,
                                        alignment);
    return LLVM::LoadOp::create(b, type, where, alignment);
  }
  Value where = address(base, emitIndexLanes(node->index, copy), node->type);
  if (!needed)
    needed = constantOf(vectorOf(b.getI1Type()), 1);
  return LLVM::masked_gather::create(b, type, where, needed, ValueRange{zero},
                                     alignment);
}

void Emitter::store(const kernels::Store &target, int copy) {
  Value value = emit(target.value, copy);
  if (lane)
    value = splat(value);
  Type element = getElementTypeOrSelf(value.getType());
  Type storage = storageOf(element);
  unsigned alignment = std::max(1u, storage.getIntOrFloatBitWidth() / 8);
  if (storage != element) {
    Type type = storage;
    if (lane)
      type = vectorOf(storage);
    value = arith::ExtUIOp::create(b, type, value);
  }
  Value base = addresses[plan.arguments.size() + target.result];
  Value index =
      lane ? emitLaneBase(target.index, copy) : emitIndex(target.index);
  Value where = address(base, index, element);
  if (mask)
    LLVM::MaskedStoreOp::create(b, value, where, mask, alignment);
  else
    LLVM::StoreOp::create(b, value, where, alignment);
}

//===----------------------------------------------------------------------===//
// Buffers of a row
//===----------------------------------------------------------------------===//

/// Allocates buffers for values of a row that are stored between loops over its
/// columns. Kernels only allocate memory on the stack. A buffer is padded to
/// whole vectors.
void Emitter::allocateBuffers() {
  for (const Node &node : plan.nodes) {
    auto found = plan.buffers.find(&node);
    if (found == plan.buffers.end() || found->second.result >= 0)
      continue;
    int64_t count = found->second.columns->count + lanes;
    bufferAddresses[&node] = LLVM::AllocaOp::create(
        b, LLVM::LLVMPointerType::get(b.getContext()), storageOf(node.type),
        constantIndex(count), /*alignment=*/64);
  }
}

Value Emitter::loadBuffer(const RowBuffer &buffer, int copy) {
  if (buffer.result >= 0)
    return NodeEmitter::loadBuffer(buffer, copy);
  Type storage = storageOf(buffer.value->type);
  Value where =
      address(bufferAddresses.lookup(buffer.value),
              emitLaneBase(buffer.columns->index(), copy), buffer.value->type);
  unsigned alignment = std::max(1u, storage.getIntOrFloatBitWidth() / 8);
  Value loaded = LLVM::LoadOp::create(b, vectorOf(storage), where, alignment);
  if (storage == buffer.value->type)
    return loaded;
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, loaded,
                               constantOf(loaded.getType(), 0));
}

void Emitter::storeBuffer(const RowBuffer &buffer, int copy) {
  Value value = emitLanes(buffer.value, copy);
  Type storage = storageOf(buffer.value->type);
  if (storage != buffer.value->type)
    value = arith::ExtUIOp::create(b, vectorOf(storage), value);
  Value where =
      address(bufferAddresses.lookup(buffer.value),
              emitLaneBase(buffer.columns->index(), copy), buffer.value->type);
  LLVM::StoreOp::create(b, value, where,
                        std::max(1u, storage.getIntOrFloatBitWidth() / 8));
}
