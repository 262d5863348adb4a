// Writes one kernel plan as a function that all threads of a grid run.
//
// Loop variables over rows and columns are computed from the numbers of block
// and thread (Launch.h). A thread beyond the last row or column repeats the
// last one, so that all threads meet at barriers and shuffles, and stores
// nothing. Loops that remain: over what is reduced sequentially, and over the
// columns of rows too long to be kept in registers.

#ifndef CLEAVE_LIB_CODEGEN_GPU_GPUEMITTER_H
#define CLEAVE_LIB_CODEGEN_GPU_GPUEMITTER_H

#include "Launch.h"
#include "cleave/Codegen/NodeEmitter.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace cleave::codegen {

class GpuEmitter : NodeEmitter {
public:
  /// Writes function `name` at the end of `module`. `alignments` are those of
  /// the addresses of operands and results; 16 where it has none.
  GpuEmitter(const kernels::KernelPlan &plan, mlir::gpu::GPUModuleOp module,
             mlir::Location loc, llvm::StringRef name,
             llvm::ArrayRef<int64_t> alignments);
  void run();

private:
  using Accumulators = llvm::SmallVector<Value>;

  // EmitThreads.cpp
  void emitThreads();
  void emitRows();
  void emitFlat();
  /// The value of `vector` (a number of a vector of the columns), and whether
  /// it is one, as loop variables of a copy.
  void place(const kernels::Columns &columns, int copy, Value vector,
             bool partial);
  /// Calls `body` for all vectors of a thread, `copyCount` of them at a time;
  /// `body` reads and replaces what is carried.
  void forColumns(const kernels::Columns &columns, Accumulators &carried,
                  llvm::function_ref<void()> body);
  void emitColumnLoop(const kernels::ColumnLoop &loop);
  void emitStores(const kernels::ColumnLoop &loop);
  void storeRow();

  // EmitJoin.cpp
  /// Combines values of the threads of a row; all threads get the outcome.
  void joinRow(llvm::ArrayRef<nn::Combiner> combiners, Accumulators &values);
  Value shuffle(Value value, int64_t offset);
  llvm::SmallVector<Value> runSequence(const IndexVar *sequence,
                                       llvm::ArrayRef<Value> start,
                                       SequenceStep step,
                                       SequenceJoin join) override;
  void joinSequence(llvm::ArrayRef<const kernels::Reduction *> group,
                    int copies, llvm::SmallVector<Value> &totals) override;
  Value workgroupBuffer(mlir::Type element, int64_t count);
  void storeWorkgroup(Value value, Value buffer, Value index);
  Value loadWorkgroup(mlir::Type element, Value buffer, Value index);

  // EmitScatter.cpp
  void emitScatter();
  void clearRows(Value first, Value before);
  void addRow(Value row, Value before);
  /// The address of a row of the table at the current columns.
  Value tableRow(Value row, Value before, int copy);
  unsigned tableAlignment();

  // EmitAccess.cpp
  Value loopValue(const IndexVar *var, int copy) override;
  int64_t laneOffset(int copy) const override { return 0; }
  bool differsByCopy(uint64_t loops) const override {
    return loops & copyLoops;
  }
  Value axisIndices() override;
  Value createLaneLoad(const Node *node, int copy, Value base,
                       mlir::VectorType type) override;
  bool isContiguous(const IndexExpr &index) const override;
  bool isUniform(const IndexVar *var) const override;
  bool isStep(const IndexVar *var) const;
  int64_t divisorOf(const IndexExpr &index) const;
  int64_t divisorOf(const IndexVar *var) const;
  /// Of a vector at `index` of an operand or result.
  unsigned alignmentOf(const IndexExpr &index, mlir::Type element,
                       unsigned source);
  bool dividesNarrow() const override { return true; }

  // Short spellings.
  Value constant32(int64_t value);
  Value add32(Value a, int64_t b);
  Value wide(Value value);
  /// value / divisor and value % divisor, of numbers from 0.
  Value quotient(Value value, int64_t divisor);
  Value remainder(Value value, int64_t divisor);
  Value both(Value a, Value b) { return NodeEmitter::both(a, b); }
  void ifTrue(Value condition, llvm::function_ref<void()> body);

  mlir::gpu::GPUModuleOp module;
  llvm::ArrayRef<int64_t> alignments;
  mlir::gpu::GPUFuncOp func;
  Launch launch;

  // i32, of this thread.
  Value block, thread; ///< numbers
  Value inRow;         ///< of `launch.threads`
  Value rowInBlock;    ///< of `launch.rows`
  Value share;         ///< of `launch.sequence`
  Value chunk;         ///< of `launch.chunks`
  Value rowIsValid;    ///< null where all rows are

  uint64_t copyLoops = 0; ///< whose variables differ between copies
  llvm::DenseMap<std::pair<unsigned, int>, Value> copyValues;
  /// Whether a copy's vector exists; null where it always does.
  llvm::DenseMap<std::pair<const kernels::Columns *, int>, Value> isValid;
  const kernels::Columns *current = nullptr;
  llvm::DenseMap<mlir::Type, Value> sequenceBuffers;
};

} // namespace cleave::codegen

#endif
