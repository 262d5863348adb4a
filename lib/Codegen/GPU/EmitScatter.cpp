// Emits nn.scatter_add: adds rows (updates) to the rows of a result tensor, the
// table, deterministically and without atomics. An index gives the target row
// of each update.
//
// Each warp owns the table's rows with the same remainder modulo `classes`, and
// only this warp writes these rows. The warp clears its rows, then reads the
// target rows of all updates, 32 at a time, and adds the updates of its own
// rows one after the other. So sums have a fixed order for any grid size. This
// has two costs: each warp reads all indices (from the L2 cache), and the
// updates of one row are sequential, so a table with few rows and many updates
// is slow.

#include "GpuEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

Value GpuEmitter::tableRow(Value row, Value before, int copy) {
  const auto &scatter = plan.scatter;
  Value index = arith::MulIOp::create(b, before, constantIndex(scatter.rows));
  index = arith::AddIOp::create(b, index, row);
  index = arith::MulIOp::create(b, index, constantIndex(scatter.columns.count));
  index =
      arith::AddIOp::create(b, index, loopValue(scatter.columns.lane, copy));
  return address(addresses[plan.arguments.size()], index, scatter.value->type);
}

unsigned GpuEmitter::tableAlignment() {
  return alignmentOf(IndexExpr(0), plan.scatter.value->type,
                     plan.arguments.size());
}

void GpuEmitter::clearRows(Value first, Value before) {
  const auto &scatter = plan.scatter;
  auto rows = beginFor(first, constantIndex(scatter.rows),
                       constantIndex(launch.classes), 0, {});
  Accumulators none;
  forColumns(scatter.columns, none, [&] {
    for (int copy = 0; copy < copyCount; ++copy) {
      Value where = tableRow(rows.getInductionVar(), before, copy);
      VectorType type = vectorOf(storageOf(scatter.value->type));
      ifTrue(isValid[{&scatter.columns, copy}], [&] {
        LLVM::StoreOp::create(b, constantOf(type, 0), where, tableAlignment());
      });
    }
  });
  endFor(rows, {});
}

void GpuEmitter::addRow(Value row, Value before) {
  const auto &scatter = plan.scatter;
  Accumulators none;
  forColumns(scatter.columns, none, [&] {
    SmallVector<Value> where, sums;
    VectorType type = vectorOf(scatter.value->type);
    unsigned alignment = tableAlignment();
    for (int copy = 0; copy < copyCount; ++copy) {
      emitLanes(scatter.value, copy);
      where.push_back(tableRow(row, before, copy));
      sums.push_back(LLVM::LoadOp::create(b, type, where[copy], alignment));
    }
    for (int copy = 0; copy < copyCount; ++copy) {
      Value sum = combine(nn::Combiner::Sum, sums[copy],
                          emitLanes(scatter.value, copy));
      ifTrue(isValid[{&scatter.columns, copy}],
             [&] { LLVM::StoreOp::create(b, sum, where[copy], alignment); });
    }
  });
}

/// Opens a scope that only the first `warps` warps execute; `number` is the
/// number of this warp. All threads of a warp execute it or none of them,
/// because the shuffles in it need all threads of the warp.
void GpuEmitter::enterWarp(Value number, int64_t warps) {
  if (warps % launch.rows != 0) {
    Value valid = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number,
                                        constant32(warps));
    auto branch = scf::IfOp::create(b, valid, /*withElseRegion=*/false);
    branch.thenBlock()->back().erase();
    scopes.push_back(std::make_unique<Scope>(0, branch.thenBlock(), branch));
  } else {
    scopes.push_back(std::make_unique<Scope>(0, scopes.back()->block, nullptr));
  }
  b.setInsertionPointToEnd(scopes.back()->block);
}

void GpuEmitter::leaveWarp() {
  if (scopes.back()->op) {
    b.setInsertionPointToEnd(scopes.back()->block);
    scf::YieldOp::create(b);
  }
  scopes.pop_back();
  b.setInsertionPointToEnd(scopes.back()->block);
}

/// Reads the target rows of the next 32 updates, from update `first` on, one in
/// each lane (thread) of the warp. Also finds which of these updates belong to
/// rows that this warp owns: those with row % launch.classes == mine.
GpuEmitter::Targets GpuEmitter::readTargets(Value first, Value mine) {
  const auto &scatter = plan.scatter;
  int64_t updates = scatter.update->size;
  Block *body = scopes.back()->block;
  Value update = arith::AddIOp::create(b, first, wide(inRow));
  Value exists;
  if (updates % kWarp != 0) {
    exists = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, update,
                                   constantIndex(updates));
    update = arith::MinUIOp::create(b, update, constantIndex(updates - 1));
  }
  scopes.push_back(std::make_unique<Scope>(
      scopes.back()->loops | scatter.update->loops, body, nullptr));
  loopValues[scatter.update->loop] = update;
  Value target = castIndex(emit(scatter.target), b.getI64Type());
  scopes.pop_back();
  Value inTable = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, target,
                                        constantIndex(scatter.rows));
  target = arith::TruncIOp::create(b, b.getI32Type(), target);
  Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                       remainder(target, launch.classes), mine);
  Value wanted = both(both(inTable, isMine), exists);
  Value votes = NVVM::VoteSyncOp::create(b, b.getI32Type(), constant32(-1),
                                         wanted, NVVM::VoteSyncKind::ballot);
  return {target, votes};
}

/// Adds those of the 32 updates that belong to the warp's own rows (their bits
/// in `targets.votes` are set), one after the other. All lanes of the warp work
/// on each update together.
void GpuEmitter::addWanted(Value first, Targets targets, Value before) {
  const auto &scatter = plan.scatter;
  Type i32 = b.getI32Type();
  auto adds =
      scf::WhileOp::create(b, TypeRange{i32}, ValueRange{targets.votes});
  {
    OpBuilder::InsertionGuard guard(b);
    Block *condition = b.createBlock(&adds.getBefore(), {}, i32, b.getLoc());
    Value left = condition->getArgument(0);
    scf::ConditionOp::create(
        b,
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, left, constant32(0)),
        ValueRange{left});
    b.createBlock(&adds.getAfter(), {}, i32, b.getLoc());
  }
  Block *after = &adds.getAfter().front();
  scopes.push_back(std::make_unique<Scope>(
      scopes.back()->loops | scatter.update->loops, after, adds));
  b.setInsertionPointToEnd(after);
  Value left = after->getArgument(0);
  Value which = math::CountTrailingZerosOp::create(b, left);
  Value row = gpu::ShuffleOp::create(b, targets.target, which,
                                     constant32(kWarp), gpu::ShuffleMode::IDX)
                  .getShuffleResult();
  loopValues[scatter.update->loop] =
      arith::AddIOp::create(b, first, wide(which));
  addRow(wide(row), before);
  b.setInsertionPointToEnd(after);
  Value next = arith::AndIOp::create(b, left, add32(left, -1));
  scf::YieldOp::create(b, ValueRange{next});
  scopes.pop_back();
  b.setInsertionPointToEnd(scopes.back()->block);
}

void GpuEmitter::emitScatter() {
  const auto &scatter = plan.scatter;
  int64_t before = scatter.before->size;
  Value number = arith::MulIOp::create(b, block, constant32(launch.rows));
  number = arith::AddIOp::create(b, number, rowInBlock);
  enterWarp(number, launch.classes * before);
  Value mine = quotient(number, before);
  Value beforeIndex = wide(remainder(number, before));
  loopValues[scatter.before->loop] = beforeIndex;
  scopes.back()->loops |= scatter.before->loops;
  clearRows(wide(mine), beforeIndex);

  auto walk = beginFor(constantIndex(0), constantIndex(scatter.update->size),
                       constantIndex(kWarp), 0, {});
  Targets targets = readTargets(walk.getInductionVar(), mine);
  addWanted(walk.getInductionVar(), targets, beforeIndex);
  endFor(walk, {});
  leaveWarp();
}
