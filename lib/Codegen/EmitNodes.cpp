// Emits the values of a kernel: loads, elementwise operations, indices.

#include "IntegerDivision.h"
#include "cleave/Codegen/NodeEmitter.h"

#include "cleave/Dialect/Dist/IR/Dist.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

NodeEmitter::Scope &NodeEmitter::scopeOf(uint64_t loops) {
  for (auto &scope : scopes)
    if ((loops & ~scope->loops) == 0)
      return *scope;
  return *scopes.back();
}

void NodeEmitter::moveTo(const Scope &scope) {
  size_t at = 0;
  while (scopes[at].get() != &scope)
    ++at;
  // The loops and branches that are already nested in this scope are operations
  // of its block. New operations are inserted before the first of them.
  for (size_t i = at + 1; i < scopes.size(); ++i)
    if (scopes[i]->op) {
      b.setInsertionPoint(scopes[i]->op);
      return;
    }
  b.setInsertionPointToEnd(scope.block);
}

scf::ForOp NodeEmitter::beginFor(Value begin, Value end, Value step,
                                 uint64_t loops, ValueRange carried) {
  b.setInsertionPointToEnd(scopes.back()->block);
  auto op = scf::ForOp::create(b, begin, end, step, carried);
  Block *body = op.getBody();
  if (!body->empty()) // MLIR only adds a yield if no values are carried
    body->back().erase();
  scopes.push_back(
      std::make_unique<Scope>(scopes.back()->loops | loops, body, op));
  b.setInsertionPointToEnd(body);
  return op;
}

void NodeEmitter::endFor(scf::ForOp loop, ValueRange carried) {
  b.setInsertionPointToEnd(scopes.back()->block);
  scf::YieldOp::create(b, carried);
  scopes.pop_back();
  b.setInsertionPointToEnd(scopes.back()->block);
}

Type NodeEmitter::storageOf(Type element) {
  return element.isInteger(1) ? b.getI8Type() : element;
}

Value NodeEmitter::constantIndex(int64_t value) {
  return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
}

Value NodeEmitter::constantOf(Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr;
  if (isa<FloatType>(element))
    attr = b.getFloatAttr(element, value);
  else
    attr = b.getIntegerAttr(element, static_cast<int64_t>(value));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, attr);
}

Value NodeEmitter::splat(Value scalar) {
  if (isa<VectorType>(scalar.getType()))
    return scalar;
  return vector::BroadcastOp::create(b, vectorOf(scalar.getType()), scalar);
}

Value NodeEmitter::both(Value a, Value b2) {
  if (!a || !b2)
    return a ? a : b2;
  return arith::AndIOp::create(b, a, b2);
}

const RowBuffer *NodeEmitter::bufferOf(const Node *node) const {
  return isLane(node) ? plan.bufferOf(node, loopNumber) : nullptr;
}

Value NodeEmitter::emit(const Node *node, int copy) {
  if (!differsByCopy(node->loops))
    copy = 0;
  Scope &scope = scopeOf(node->loops);
  if (Value value = scope.values.lookup({node, copy}))
    return value;
  // A value that an earlier loop of the row has stored in a buffer is loaded,
  // not recomputed, because its operands may have been overwritten.
  if (const RowBuffer *buffer = bufferOf(node)) {
    OpBuilder::InsertionGuard guard(b);
    moveTo(scope);
    return scope.values[{node, copy}] = loadBuffer(*buffer, copy);
  }
  if (node->kind == Node::Kind::Reduced && !node->reduction->perRow()) {
    emitSequential(node->reduction);
    return scope.values.lookup({node, copy});
  }
  assert(node->kind != Node::Kind::Reduced &&
         "a row's reduction is emitted before what needs it");
  // Operands are emitted first. They may belong to outer loops, in whose scopes
  // they are then inserted.
  for (const Node *operand : node->operands)
    emit(operand, copy);
  OpBuilder::InsertionGuard guard(b);
  moveTo(scope);
  Value value = create(node, copy);
  scope.values[{node, copy}] = value;
  return value;
}

Value NodeEmitter::emitLanes(const Node *node, int copy) {
  return splat(emit(node, copy));
}

Value NodeEmitter::create(const Node *node, int copy) {
  switch (node->kind) {
  case Node::Kind::Compute:
    return createCompute(node, copy);
  case Node::Kind::Load:
  case Node::Kind::Table:
    return createLoad(node, copy);
  case Node::Kind::Constant:
    return arith::ConstantOp::create(b, cast<TypedAttr>(node->value));
  case Node::Kind::Index: {
    Value index = isLane(node) ? emitIndexLanes(node->index, copy)
                               : emitIndex(node->index, copy);
    return castIndex(index, node->type);
  }
  case Node::Kind::InRange: {
    // The comparison is unsigned: negative indices become large numbers and are
    // out of range, too.
    Value value;
    if (!node->operands.empty()) {
      value = emit(node->operands[0], copy);
      value = castIndex(value, b.getI64Type());
    } else {
      value = isLane(node) ? emitIndexLanes(node->index, copy)
                           : emitIndex(node->index, copy);
    }
    if (node->low != 0)
      value = arith::SubIOp::create(b, value,
                                    constantOf(value.getType(), node->low));
    return arith::CmpIOp::create(
        b, arith::CmpIPredicate::ult, value,
        constantOf(value.getType(), node->high - node->low));
  }
  case Node::Kind::Select: {
    Value condition = emit(node->operands[0], copy),
          yes = emit(node->operands[1], copy),
          no = emit(node->operands[2], copy);
    if (isLane(node)) {
      condition = splat(condition);
      yes = splat(yes);
      no = splat(no);
    }
    return arith::SelectOp::create(b, condition, yes, no);
  }
  case Node::Kind::RankOffset:
    return createRankOffset(node);
  case Node::Kind::Reduced:
    break;
  }
  llvm_unreachable("reductions are written by their loops");
}

Value NodeEmitter::createCompute(const Node *node, int copy) {
  bool vectors = isLane(node);
  SmallVector<Value> operands;
  for (const Node *operand : node->operands)
    operands.push_back(vectors ? emitLanes(operand, copy)
                               : emit(operand, copy));
  if (dividesIntegers(node->op))
    return createDivision(b, node->op, operands[0], operands[1]);
  if (auto check = dyn_cast<nn::CheckIndexOp>(node->op)) {
    // The comparison is unsigned: negative indices become large numbers and are
    // out of range, too.
    Value index = operands[0];
    Value beyond =
        arith::CmpIOp::create(b, arith::CmpIPredicate::uge, index,
                              constantOf(index.getType(), check.getRows()));
    if (node->guard)
      beyond = both(beyond, vectors ? emitLanes(node->guard, copy)
                                    : emit(node->guard, copy));
    reportIndex(index, beyond, check.getRows());
    return index;
  }
  SmallVector<Type> types;
  for (Type type : node->op->getResultTypes()) {
    Type element = getElementTypeOrSelf(type);
    types.push_back(vectors ? Type(vectorOf(element)) : element);
  }
  OperationState state(b.getLoc(), node->op->getName(), operands, types,
                       node->op->getAttrDictionary().getValue());
  return b.create(state)->getResult(node->result);
}

Value NodeEmitter::createRankOffset(const Node *node) {
  Operation *op = node->op;
  auto meshName = op->getAttrOfType<FlatSymbolRefAttr>("mesh");
  auto axes = op->getAttrOfType<dist::AxisListAttr>("axes");
  dist::MeshAttr mesh = dist::MeshOp::lookup(op, meshName).getMesh();
  Value table = axisIndices();
  Value index = constantIndex(0);
  for (dist::AxisRefAttr ref : axes.getAxes()) {
    int64_t number = 0;
    while (mesh.getAxes()[number].getName() != ref.getName())
      ++number;
    int64_t axisSize = mesh.getAxes()[number].getSize(), size = axisSize;
    Value part = LLVM::LoadOp::create(
        b, b.getI64Type(),
        address(table, constantIndex(number), b.getI64Type()));
    if (!ref.isWhole()) {
      size = ref.getSize();
      part = arith::DivUIOp::create(
          b, part, constantIndex(axisSize / (ref.getPre() * size)));
      part = arith::RemUIOp::create(b, part, constantIndex(size));
    }
    index = arith::MulIOp::create(b, index, constantIndex(size));
    index = arith::AddIOp::create(b, index, part);
  }
  int64_t tile = 1;
  if (auto offset = dyn_cast<dist::TileOffsetOp>(op))
    tile = offset.getTile();
  else if (auto slice = dyn_cast<dist::SliceOp>(op))
    tile = cast<RankedTensorType>(slice.getResult().getType())
               .getDimSize(slice.getDim());
  index = arith::MulIOp::create(b, index, constantIndex(tile));
  return castIndex(index, node->type);
}

/// Casts an index to another integer type or to a float type.
Value NodeEmitter::castIndex(Value index, Type element) {
  Type from = getElementTypeOrSelf(index.getType());
  if (from == element)
    return index;
  Type to = element;
  if (auto vector = dyn_cast<VectorType>(index.getType()))
    to = vector.clone(element);
  if (isa<FloatType>(element))
    return arith::SIToFPOp::create(b, to, index);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtSIOp::create(b, to, index);
  return arith::TruncIOp::create(b, to, index);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Value NodeEmitter::emitVar(const IndexVar *var, int copy) {
  if (var->kind == IndexVar::Kind::Loop)
    return loopValue(var, copy);
  if (!differsByCopy(var->loops))
    copy = 0;
  Scope &scope = scopeOf(var->loops);
  if (Value value = scope.indices.lookup({var, copy}))
    return value;
  Value base = var->kind == IndexVar::Kind::Data ? emit(var->node, copy)
                                                 : emitIndex(var->base, copy);
  OpBuilder::InsertionGuard guard(b);
  moveTo(scope);
  Value value;
  if (var->kind == IndexVar::Kind::Data) {
    value = castIndex(base, b.getI64Type());
    if (var->node->kind != Node::Kind::RankOffset) {
      Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                                           constantIndex(var->size));
      value = arith::SelectOp::create(b, inside, value, constantIndex(0));
    }
  } else {
    if (dividesNarrow() && var->base.min() >= 0 && var->base.max() <= INT32_MAX)
      base = castIndex(base, b.getI32Type());
    Value divisor = constantOf(base.getType(), var->divisor);
    if (var->kind == IndexVar::Kind::FloorDiv)
      value = arith::DivUIOp::create(b, base, divisor);
    else
      value = arith::RemUIOp::create(b, base, divisor);
    value = castIndex(value, b.getI64Type());
  }
  scope.indices[{var, copy}] = value;
  return value;
}

Value NodeEmitter::emitIndex(const IndexExpr &index, int copy) {
  SmallVector<std::pair<Value, int64_t>> parts;
  for (auto [var, factor] : index.terms())
    parts.push_back({emitVar(var, copy), factor});
  OpBuilder::InsertionGuard guard(b);
  moveTo(scopeOf(index.loops()));
  Value sum = constantIndex(index.constant());
  for (auto [value, factor] : parts) {
    if (factor != 1)
      value = arith::MulIOp::create(b, value, constantIndex(factor));
    sum = arith::AddIOp::create(b, sum, value);
  }
  return sum;
}

bool NodeEmitter::isContiguous(const IndexExpr &index) const {
  for (auto [var, factor] : index.terms())
    if (var->loops & lane->loops && (var != lane || factor != 1))
      return false;
  return index.coefficient(lane) == 1;
}

Value NodeEmitter::emitLaneBase(const IndexExpr &index, int copy) {
  // Unrolling computes several consecutive vectors (copies) per iteration.
  // emitIndex returns the index of the first lane in the first of these
  // vectors. The distance from there to vector number `copy` is added here.
  Value base = emitIndex(index, copy);
  int64_t offset = laneOffset(copy);
  if (offset == 0)
    return base;
  return arith::AddIOp::create(b, base, constantIndex(offset));
}

Value NodeEmitter::emitVarLanes(const IndexVar *var, int copy) {
  Scope &scope = scopeOf(var->loops);
  if (Value value = scope.laneIndices.lookup({var, copy}))
    return value;
  Type type = vectorOf(b.getI64Type());
  Value value;
  if (var == lane) {
    OpBuilder::InsertionGuard guard(b);
    moveTo(scope);
    SmallVector<int64_t> steps;
    for (int64_t i = 0; i < lanes; ++i)
      steps.push_back(laneOffset(copy) + i);
    Value step = arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(type),
                                  ArrayRef<int64_t>(steps)));
    value = arith::AddIOp::create(b, splat(loopValue(var, copy)), step);
  } else {
    Value base = var->kind == IndexVar::Kind::Data
                     ? emitLanes(var->node, copy)
                     : emitIndexLanes(var->base, copy);
    OpBuilder::InsertionGuard guard(b);
    moveTo(scope);
    if (var->kind == IndexVar::Kind::Data) {
      value = castIndex(base, b.getI64Type());
      Value inside =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                                constantOf(value.getType(), var->size));
      value = arith::SelectOp::create(b, inside, value,
                                      constantOf(value.getType(), 0));
    } else {
      // Vector division of 64-bit integers is slow, and the indices of almost
      // all tensors fit into 32 bits.
      bool small = var->base.min() >= 0 && var->base.max() <= INT32_MAX;
      if (small)
        base = castIndex(base, b.getI32Type());
      Value divisor = constantOf(base.getType(), var->divisor);
      if (var->kind == IndexVar::Kind::FloorDiv)
        value = arith::DivUIOp::create(b, base, divisor);
      else
        value = arith::RemUIOp::create(b, base, divisor);
      value = castIndex(value, b.getI64Type());
    }
  }
  scope.laneIndices[{var, copy}] = value;
  return value;
}

Value NodeEmitter::emitIndexLanes(const IndexExpr &index, int copy) {
  IndexExpr same(index.constant());
  SmallVector<std::pair<Value, int64_t>> parts;
  for (auto [var, factor] : index.terms()) {
    if (!isUniform(var))
      parts.push_back({emitVarLanes(var, copy), factor});
    else
      same = same + IndexExpr::of(var) * factor;
  }
  Value sum = emitIndex(same, copy);
  OpBuilder::InsertionGuard guard(b);
  moveTo(scopeOf(index.loops()));
  sum = splat(sum);
  for (auto [value, factor] : parts) {
    if (factor != 1)
      value =
          arith::MulIOp::create(b, value, constantOf(value.getType(), factor));
    sum = arith::AddIOp::create(b, sum, value);
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value NodeEmitter::address(Value base, Value index, Type element) {
  Type type = base.getType();
  if (auto vector = dyn_cast<VectorType>(index.getType()))
    type = VectorType::get(vector.getShape(), base.getType());
  return LLVM::GEPOp::create(b, type, storageOf(element), base,
                             ArrayRef<LLVM::GEPArg>{index});
}

/// Returns the address of a constant tensor, which is a read-only global of the
/// library.
Value NodeEmitter::tableAddress(const Node *node) {
  LLVM::GlobalOp &table = tables[node->value];
  if (!table) {
    auto values = cast<DenseElementsAttr>(node->value);
    Type storage = storageOf(values.getElementType());
    Attribute contents = values;
    if (storage != values.getElementType()) {
      SmallVector<int8_t> bytes;
      for (bool value : values.getValues<bool>())
        bytes.push_back(value);
      contents = DenseElementsAttr::get(
          RankedTensorType::get({int64_t(bytes.size())}, storage),
          ArrayRef<int8_t>(bytes));
    } else {
      contents = values.reshape(
          RankedTensorType::get({values.getNumElements()}, storage));
    }
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    table = LLVM::GlobalOp::create(
        b, LLVM::LLVMArrayType::get(storage, values.getNumElements()),
        /*isConstant=*/true, LLVM::Linkage::Internal,
        name + ".table" + std::to_string(tables.size() - 1), contents,
        /*alignment=*/0, addressSpace);
  }
  return LLVM::AddressOfOp::create(b, table);
}

Value NodeEmitter::createLoad(const Node *node, int copy) {
  Type storage = storageOf(node->type);
  Value base = node->kind == Node::Kind::Table ? tableAddress(node)
                                               : addresses[node->source];
  Value loaded;
  if (!isLane(node)) {
    Value index = emitIndex(node->index, copy);
    if (node->guard)
      index = arith::SelectOp::create(b, emit(node->guard, copy), index,
                                      constantIndex(0));
    loaded = LLVM::LoadOp::create(b, storage, address(base, index, node->type),
                                  bytesOf(node->type));
  } else {
    loaded = createLaneLoad(node, copy, base, vectorOf(storage));
  }
  if (storage == node->type)
    return loaded;
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, loaded,
                               constantOf(loaded.getType(), 0));
}

/// Loads a value that an earlier loop over the same row has stored in the
/// memory of a result, where it serves as a buffer.
Value NodeEmitter::loadBuffer(const RowBuffer &buffer, int copy) {
  assert(buffer.result >= 0 && "buffers of their own are the subclass's");
  Node read = *buffer.value;
  read.kind = Node::Kind::Load;
  read.source = plan.arguments.size() + buffer.result;
  for (const Store &target : plan.loops[buffer.first].stores)
    if (static_cast<int>(target.result) == buffer.result)
      read.index = target.index;
  read.guard = nullptr;
  return createLoad(&read, copy);
}
