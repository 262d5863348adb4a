// Emits the code that each thread runs. It finds the row and the columns of the
// iteration space that the thread handles, computes their elements, and stores
// the results.

#include "GpuEmitter.h"

#include "cleave/Fusion/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// The address space of global memory.
static constexpr unsigned kGlobal = 1;

GpuEmitter::GpuEmitter(const KernelPlan &plan, gpu::GPUModuleOp module,
                       Location loc, StringRef name,
                       ArrayRef<int64_t> alignments)
    : NodeEmitter(plan, loc, name, kGlobal), module(module),
      alignments(alignments), launch(chooseLaunch(plan)) {}

void GpuEmitter::run() {
  b.setInsertionPointToEnd(module.getBody());
  size_t count = plan.arguments.size() + plan.outputs.size();
  SmallVector<Type> arguments(count + 1, pointerType());
  func = gpu::GPUFuncOp::create(b, name, b.getFunctionType(arguments, {}));
  func->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  func.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(launch.block()), 1, 1}));
  func.setKnownGridSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(launch.grid), 1, 1}));
  // Declares in the kernel's PTX the alignments of its arguments that the
  // kernel assumes.
  for (size_t i = 0; i <= count; ++i) {
    int64_t alignment = i == count              ? sizeof(int64_t)
                        : i < alignments.size() ? alignments[i]
                                                : kKernelAlignment;
    func.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(alignment));
  }
  function = func;
  for (size_t i = 0; i < count; ++i)
    addresses.push_back(func.getArgument(i));
  Block *entry = &func.getBody().front();
  b.setInsertionPointToEnd(entry);
  scopes.push_back(std::make_unique<Scope>(0, entry, nullptr));
  emitThreads();
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
  gpu::ReturnOp::create(b);
}

/// Computes a thread's numbers from its number in the block, which is (share *
/// rows + rowInBlock) * threads + inRow. `inRow` numbers the threads of a row,
/// so that adjacent threads of a row are adjacent in a warp. `share` numbers
/// the threads that share a sequential reduction.
void GpuEmitter::emitThreads() {
  auto number = [&](Value index) -> Value {
    return arith::IndexCastUIOp::create(b, b.getI32Type(), index);
  };
  block = number(gpu::BlockIdOp::create(b, gpu::Dimension::x));
  thread = number(gpu::ThreadIdOp::create(b, gpu::Dimension::x));
  inRow = remainder(thread, launch.threads);
  rowInBlock = remainder(quotient(thread, launch.threads), launch.rows);
  share = launch.sequence == 1 ? constant32(0)
                               : quotient(thread, launch.threads * launch.rows);
  chunk = remainder(block, launch.chunks);
  if (!plan.row)
    return;
  int64_t rows = plan.row->size;
  Value row = arith::MulIOp::create(b, quotient(block, launch.chunks),
                                    constant32(launch.rows));
  row = arith::AddIOp::create(b, row, rowInBlock);
  if (rows % launch.rows != 0) {
    rowIsValid = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, row,
                                       constant32(rows));
    row = arith::MinUIOp::create(b, row, constant32(rows - 1));
  }
  loopValues[plan.row->loop] = wide(row);
  scopes.back()->loops |= plan.row->loops;
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

void GpuEmitter::place(const Columns &columns, int copy, Value vector,
                       bool partial) {
  const ColumnLaunch &entry = launch.columns[&columns];
  Value &valid = isValid[{&columns, copy}];
  valid = nullptr;
  if (partial) {
    valid = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, vector,
                                  constant32(entry.vectors));
    vector = arith::MinUIOp::create(b, vector, constant32(entry.vectors - 1));
  }
  int64_t inLane = columns.lane->size / entry.lanes;
  Value outer = constant32(0);
  if (columns.outer->size > 1) {
    outer = quotient(vector, inLane);
    vector = remainder(vector, inLane);
  }
  vector = arith::MulIOp::create(b, wide(vector), constantIndex(entry.lanes));
  copyValues[{columns.outer->loop, copy}] = wide(outer);
  copyValues[{columns.lane->loop, copy}] = vector;
}

void GpuEmitter::forColumns(const Columns &columns, Accumulators &carried,
                            llvm::function_ref<void()> body) {
  const ColumnLaunch &entry = launch.columns[&columns];
  uint64_t loops = columns.outer->loops | columns.lane->loops;
  int64_t step = launch.threads * entry.copies;
  lane = columns.lane;
  lanes = entry.lanes;
  copyLoops = loops;
  current = &columns;
  auto placeAll = [&](Value first, int64_t begin, int64_t copies, bool mayEnd) {
    copyCount = copies;
    for (int64_t copy = 0; copy < copies; ++copy) {
      Value vector = add32(first, copy * launch.threads);
      // A row may be divided into chunks, one per block. Only the last chunk of
      // a row can be incomplete; in all other chunks, all vectors exist.
      bool partial =
          mayEnd && (launch.chunks > 1
                         ? entry.vectors % step != 0 ||
                               entry.vectors / step != launch.chunks
                         : begin + (copy + 1) * launch.threads > entry.vectors);
      place(columns, copy, vector, partial);
    }
  };
  if (entry.kept) {
    // If a thread keeps its columns in registers between loops, all loops over
    // these columns use the same column indices, so they are set only once.
    if (!(scopes.back()->loops & columns.lane->loops)) {
      Value first = arith::MulIOp::create(b, chunk, constant32(step));
      placeAll(arith::AddIOp::create(b, first, inRow), 0, entry.copies, true);
      scopes.back()->loops |= loops;
    }
    copyCount = entry.copies;
    body();
  } else {
    int64_t rounds = entry.vectors / step, done = rounds * step;
    if (rounds > 0) {
      auto loop = beginFor(constantIndex(0), constantIndex(rounds),
                           constantIndex(1), loops, carried);
      carried.assign(loop.getRegionIterArgs().begin(),
                     loop.getRegionIterArgs().end());
      Value first =
          arith::TruncIOp::create(b, b.getI32Type(), loop.getInductionVar());
      first = arith::MulIOp::create(b, first, constant32(step));
      placeAll(arith::AddIOp::create(b, first, inRow), 0, entry.copies, false);
      body();
      endFor(loop, carried);
      carried.assign(loop.getResults().begin(), loop.getResults().end());
    }
    if (done < entry.vectors) {
      Block *block = scopes.back()->block;
      scopes.push_back(std::make_unique<Scope>(scopes.back()->loops | loops,
                                               block, nullptr));
      int64_t copies =
          (entry.vectors - done + launch.threads - 1) / launch.threads;
      placeAll(add32(inRow, done), done, copies, true);
      body();
      scopes.pop_back();
    }
  }
  lane = nullptr;
  lanes = 1;
  copyLoops = 0;
  copyCount = 1;
  current = nullptr;
}

void GpuEmitter::emitColumnLoop(const ColumnLoop &loop) {
  SmallVector<nn::Combiner> combiners;
  for (const Reduction *reduction : loop.reductions) {
    auto op = reduction->op;
    combiners.push_back(op.getCombiner());
  }
  const ColumnLaunch &entry = launch.columns[loop.columns];
  auto startOf = [&](const Reduction *reduction, int64_t lanes) {
    auto op = reduction->op;
    Type type = VectorType::get({lanes}, reduction->input->type);
    return identity(op.getCombiner(), type);
  };
  Accumulators totals;
  if (!entry.kept)
    for (const Reduction *reduction : loop.reductions)
      for (int64_t copy = 0; copy < entry.copies; ++copy)
        totals.push_back(startOf(reduction, entry.lanes));
  bool started = !entry.kept;

  forColumns(*loop.columns, totals, [&] {
    // All values are computed before any store, because a store to one result
    // may overwrite an argument that another result depends on.
    for (int copy = 0; copy < copyCount; ++copy) {
      for (const Reduction *reduction : loop.reductions)
        emit(reduction->input, copy);
      for (const Store &target : loop.stores)
        emit(target.value, copy);
    }
    if (!started)
      totals.resize(loop.reductions.size() * entry.copies);
    for (auto [number, reduction] : llvm::enumerate(loop.reductions))
      for (int copy = 0; copy < copyCount; ++copy) {
        Value value = emitLanes(reduction->input, copy);
        if (Value valid = isValid[{loop.columns, copy}])
          value = arith::SelectOp::create(b, valid, value,
                                          startOf(reduction, entry.lanes));
        Value &total = totals[number * entry.copies + copy];
        total = started ? combine(combiners[number], total, value) : value;
      }
    emitStores(loop);
  });
  if (loop.reductions.empty())
    return;

  Accumulators joined;
  lanes = entry.lanes;
  for (auto [number, combiner] : llvm::enumerate(combiners)) {
    ArrayRef<Value> copies =
        ArrayRef(totals).slice(number * entry.copies, entry.copies);
    Value total = copies[0];
    for (Value other : copies.drop_front())
      total = combine(combiner, total, other);
    joined.push_back(horizontal(combiner, total));
  }
  lanes = 1;
  joinRow(combiners, joined);
  for (auto [reduction, value] : llvm::zip_equal(loop.reductions, joined))
    scopeOf(reduction->outcome->loops).values[{reduction->outcome, 0}] = value;
}

void GpuEmitter::emitStores(const ColumnLoop &loop) {
  if (loop.stores.empty())
    return;
  // If an argument's memory is reused for the result, a thread that shares the
  // sum may still read the argument. So all threads wait before the stores.
  if (launch.sequence > 1) {
    for (int copy = 0; copy < copyCount; ++copy)
      for (const Store &target : loop.stores)
        emitLanes(target.value, copy);
    gpu::BarrierOp::create(b);
  }
  Value stores = rowIsValid;
  if (launch.sequence > 1)
    stores = both(stores, arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                share, constant32(0)));
  for (int copy = 0; copy < copyCount; ++copy) {
    SmallVector<std::tuple<Value, Value, unsigned>> writes;
    for (const Store &target : loop.stores) {
      Value value = emitLanes(target.value, copy);
      Type element = getElementTypeOrSelf(value.getType());
      if (storageOf(element) != element)
        value = arith::ExtUIOp::create(b, vectorOf(storageOf(element)), value);
      Value base = addresses[plan.arguments.size() + target.result];
      Value where = address(base, emitLaneBase(target.index, copy), element);
      writes.push_back({value, where,
                        alignmentOf(target.index, element,
                                    plan.arguments.size() + target.result)});
    }
    ifTrue(both(stores, isValid[{loop.columns, copy}]), [&] {
      for (auto [value, where, alignment] : writes)
        LLVM::StoreOp::create(b, value, where, alignment);
    });
  }
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

void GpuEmitter::emitFlat() {
  auto emitAll = [&] {
    for (auto [number, loop] : llvm::enumerate(plan.loops)) {
      loopNumber = number;
      emitColumnLoop(loop);
    }
  };
  Block *entry = scopes.back()->block;
  scopes.push_back(std::make_unique<Scope>(0, entry, nullptr));
  emitAll();
  scopes.pop_back();

  const Columns &columns = plan.columnSpaces.front();
  ColumnLaunch &whole = launch.columns[&columns];
  int64_t done = whole.vectors * whole.lanes, rest = columns.count - done;
  if (rest == 0)
    return;
  // The elements after the last whole vector are computed one by one, by the
  // first threads of the grid.
  Value number = arith::MulIOp::create(b, block, constant32(launch.block()));
  number = arith::AddIOp::create(b, number, thread);
  Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number,
                                     constant32(rest));
  auto branch = scf::IfOp::create(b, some, /*withElseRegion=*/false);
  Block *body = branch.thenBlock();
  body->back().erase();
  scopes.push_back(std::make_unique<Scope>(columns.lane->loops, body, branch));
  b.setInsertionPointToEnd(body);
  ColumnLaunch saved = whole;
  whole = {1, columns.count, 1, true};
  copyValues[{columns.lane->loop, 0}] = wide(add32(number, done));
  isValid[{&columns, 0}] = nullptr;
  emitAll();
  whole = saved;
  b.setInsertionPointToEnd(body);
  scf::YieldOp::create(b);
  scopes.pop_back();
  b.setInsertionPointToEnd(entry);
}

void GpuEmitter::emitRows() {
  for (auto [number, loop] : llvm::enumerate(plan.loops)) {
    loopNumber = number;
    emitColumnLoop(loop);
  }
  if (!plan.rowStores.empty())
    storeRow();
}

/// Stores the results with one value per row; one thread of the row does this.
void GpuEmitter::storeRow() {
  // All values are computed before any store, because a store to one result may
  // overwrite an argument that another result depends on.
  for (const Store &target : plan.rowStores)
    emit(target.value);
  if (!plan.inPlace().empty()) {
    // If an argument's memory is reused for the result, other threads of the
    // row may still read the argument. So they all wait before the stores.
    if (launch.threads > kWarp || launch.sequence > 1)
      gpu::BarrierOp::create(b);
    else if (launch.threads > 1)
      NVVM::SyncWarpOp::create(b, constant32(-1));
  }
  Value stores = rowIsValid;
  auto isFirst = [&](Value number, int64_t count) {
    if (count > 1)
      stores = both(stores, arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                  number, constant32(0)));
  };
  isFirst(inRow, launch.threads);
  isFirst(share, launch.sequence);
  isFirst(chunk, launch.chunks);
  SmallVector<std::pair<Value, Value>> writes;
  for (const Store &target : plan.rowStores) {
    Value value = emit(target.value);
    Type element = value.getType();
    if (storageOf(element) != element)
      value = arith::ExtUIOp::create(b, storageOf(element), value);
    Value base = addresses[plan.arguments.size() + target.result];
    writes.push_back({value, address(base, emitIndex(target.index), element)});
  }
  ifTrue(stores, [&] {
    for (auto [value, where] : writes)
      LLVM::StoreOp::create(b, value, where, bytesOf(value.getType()));
  });
}
