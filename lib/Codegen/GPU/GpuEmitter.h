// Emits a kernel plan as a GPU function, which all threads of a grid run.
//
// Loop variables of rows and columns are computed from the block and thread
// numbers (Launch.h). A thread beyond the last row or column repeats the last
// one without storing, so that all threads reach barriers and shuffles. The
// remaining loops run over sequential reductions and over the columns of rows
// that are too long for registers.

#ifndef CLEAVE_LIB_CODEGEN_GPU_GPUEMITTER_H
#define CLEAVE_LIB_CODEGEN_GPU_GPUEMITTER_H

#include "Launch.h"
#include "cleave/Codegen/NodeEmitter.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace cleave::codegen {

class GpuEmitter : NodeEmitter {
public:
  /// Prepares to emit the function `name`; run() emits it at the end of
  /// `module`. `alignments` are the byte alignments of operands and results;
  /// missing entries mean 16.
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
  /// Sets the loop variables of a thread so that copy number `copy` computes
  /// vector number `vector` of the row. A copy is one of several vectors that
  /// unrolling computes in one iteration. If `partial` is true, also sets the
  /// condition that the row has this vector.
  void place(const kernels::Columns &columns, int copy, Value vector,
             bool partial);
  /// Emits `body` for all vectors of a row that a thread computes, `copyCount`
  /// vectors at a time. `carried` are the accumulators of reductions, which
  /// `body` updates.
  void forColumns(const kernels::Columns &columns, Accumulators &carried,
                  llvm::function_ref<void()> body);
  void emitColumnLoop(const kernels::ColumnLoop &loop);
  void emitStores(const kernels::ColumnLoop &loop);
  void storeRow();

  // EmitJoin.cpp
  /// Combines values of the threads of a row; all threads get the result.
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
  /// 32 updates of a scatter, one per lane of the warp. `target` is the row to
  /// which the lane's update is added. `votes` is equal in all lanes and has a
  /// bit for each lane whose update belongs to a row that the warp owns.
  struct Targets {
    Value target, votes;
  };
  void emitScatter();
  void enterWarp(Value number, int64_t warps);
  void leaveWarp();
  Targets readTargets(Value first, Value mine);
  void addWanted(Value first, Targets targets, Value before);
  void clearRows(Value first, Value before);
  void addRow(Value row, Value before);
  /// Returns the address of an element in the result of a scatter: in row
  /// `row`, at the first column of copy `copy` (a vector, see `place`).
  /// `before` is the index in the dimensions before the rows.
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
  /// Returns the alignment in bytes of an access to a vector at `index` of
  /// operand or result number `source`.
  unsigned alignmentOf(const IndexExpr &index, mlir::Type element,
                       unsigned source);
  bool dividesNarrow() const override { return true; }

  // Helpers.
  Value constant32(int64_t value);
  Value add32(Value a, int64_t b);
  Value wide(Value value);
  /// Return value / divisor and value % divisor for nonnegative values.
  Value quotient(Value value, int64_t divisor);
  Value remainder(Value value, int64_t divisor);
  Value both(Value a, Value b) { return NodeEmitter::both(a, b); }
  void ifTrue(Value condition, llvm::function_ref<void()> body);

  mlir::gpu::GPUModuleOp module;
  llvm::ArrayRef<int64_t> alignments;
  mlir::gpu::GPUFuncOp func;
  Launch launch;

  // Values of type i32 for this thread.
  Value block, thread; ///< block and thread number
  Value inRow;         ///< number of the thread among those of its row
  Value rowInBlock;    ///< number of the row among those of the block
  Value share;         ///< number among the launch.sequence threads of a sum
  Value chunk;         ///< number of the block among those that share a row
  Value rowIsValid;    ///< condition that the row exists; null if all do

  uint64_t copyLoops = 0; ///< loops whose variables differ between copies
  llvm::DenseMap<std::pair<unsigned, int>, Value> copyValues;
  /// For each copy (see `place`), the condition (i1) that the row has the
  /// vector of this copy; null if the row always has it.
  llvm::DenseMap<std::pair<const kernels::Columns *, int>, Value> isValid;
  const kernels::Columns *current = nullptr;
  llvm::DenseMap<mlir::Type, Value> sequenceBuffers;
};

} // namespace cleave::codegen

#endif
