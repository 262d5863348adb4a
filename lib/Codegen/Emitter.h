// Emits the loops of one kernel plan for a CPU.
//
// The innermost loop is vectorized and possibly unrolled to hide latency; a
// last incomplete vector is masked.

#ifndef CLEAVE_LIB_CODEGEN_EMITTER_H
#define CLEAVE_LIB_CODEGEN_EMITTER_H

#include "cleave/Codegen/NodeEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

class Emitter : NodeEmitter {
public:
  /// Prepares to emit the function `name`; run() emits it at the end of
  /// `module`.
  Emitter(const kernels::KernelPlan &plan, mlir::ModuleOp module,
          mlir::Location loc, llvm::StringRef name, unsigned vectorBits);
  mlir::LogicalResult run();

private:
  /// The first column of a loop, and the column after its last one.
  struct Range {
    Value begin, end;
    int64_t staticSize = -1; ///< end - begin; -1 if not known
  };

  // EmitLoops.cpp
  void emitRows();
  void emitFlat();
  void emitScatter();
  Value tableRow(Value row, Value before);
  void clearRows(Value begin, Value end);
  void addUpdate(Value row);
  void addColumns(Value row, int64_t from, int64_t to);
  void emitColumnLoop(const kernels::ColumnLoop &loop, Range range);
  void emitLanes(const kernels::ColumnLoop &loop, Range range,
                 llvm::SmallVector<Value> &accumulators);
  using NodeEmitter::emitLanes;
  void emitLaneBody(const kernels::ColumnLoop &loop, int copies,
                    llvm::SmallVector<Value> &accumulators);
  int chooseCopies(const kernels::ColumnLoop &loop);

  // EmitMemory.cpp
  Value loopValue(const IndexVar *var, int copy) override {
    return loopValues.lookup(var->loop);
  }
  Value axisIndices() override;
  void reportIndex(Value index, Value beyond, int64_t rows) override;
  Value createLaneLoad(const Node *node, int copy, Value base,
                       mlir::VectorType type) override;
  void store(const kernels::Store &target, int copy);
  Value loadBuffer(const kernels::RowBuffer &buffer, int copy) override;
  void storeBuffer(const kernels::RowBuffer &buffer, int copy);
  void allocateBuffers();

  mlir::ModuleOp module;
  mlir::func::FuncOp func;
  llvm::DenseMap<const Node *, Value> bufferAddresses;
  Value mask; ///< lanes of an incomplete vector that exist; else null
};

} // namespace cleave::codegen

#endif
