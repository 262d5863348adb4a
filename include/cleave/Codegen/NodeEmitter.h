// Emits the operations that compute the values (kernels::Node) of one kernel
// plan; subclasses emit the loops around them.
//
// A value is emitted once, in the outermost scope (usually the body of a loop)
// in which its operands are known. In the innermost loop, a value is a vector
// whose elements ("lanes") belong to consecutive columns. Where unrolling hides
// latency, a value is several such vectors ("copies"). Subclasses define the
// loop variables: on a CPU they are counters (Emitter.h), on a GPU they come
// from thread numbers (GPU/GpuEmitter.h).

#ifndef CLEAVE_CODEGEN_NODEEMITTER_H
#define CLEAVE_CODEGEN_NODEEMITTER_H

#include "cleave/Fusion/KernelPlan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

class NodeEmitter {
public:
  NodeEmitter(const kernels::KernelPlan &plan, mlir::Location loc,
              llvm::StringRef name, unsigned addressSpace)
      : plan(plan), name(name), b(loc, loc.getContext()),
        addressSpace(addressSpace) {}
  virtual ~NodeEmitter() = default;

protected:
  using Value = mlir::Value;
  using Node = kernels::Node;
  using IndexExpr = kernels::IndexExpr;
  using IndexVar = kernels::IndexVar;

  /// A block into which operations are emitted, normally the body of a loop or
  /// branch in the block of the previous scope. A scope can also be a section
  /// of the previous scope's block; operations after the section then do not
  /// use its values.
  struct Scope {
    Scope(uint64_t loops, mlir::Block *block, mlir::Operation *op)
        : loops(loops), block(block), op(op) {}
    /// The loops whose variables are known here, as a bit mask (Node::loops).
    uint64_t loops;
    mlir::Block *block;
    /// The loop or branch whose body is `block`; null if the scope is a section
    /// of the previous scope's block.
    mlir::Operation *op;
    llvm::DenseMap<std::pair<const Node *, int>, Value> values;
    llvm::DenseMap<std::pair<const IndexVar *, int>, Value> indices;
    llvm::DenseMap<std::pair<const IndexVar *, int>, Value> laneIndices;
  };

  // The following functions depend on the target.

  /// Returns the value of a loop variable. For the lane variable, returns the
  /// index of the first lane of vector number `copy`, without the offset
  /// `laneOffset(copy)`, which the caller adds.
  virtual Value loopValue(const IndexVar *var, int copy) = 0;
  /// Unrolling emits several vectors ("copies") of a value. Returns the number
  /// of elements from the lane variable's value to the first lane of copy
  /// number `copy`.
  virtual int64_t laneOffset(int copy) const { return copy * lanes; }
  /// Returns whether the copies (the vectors that unrolling emits for one
  /// value) of a value that depends on `loops` differ from each other.
  virtual bool differsByCopy(uint64_t loops) const {
    return lane && loops & lane->loops;
  }
  /// Returns the address of this rank's indices along the mesh axes.
  virtual Value axisIndices() = 0;
  /// Emits code that reports `index` to the runtime if `beyond` is true, that
  /// is, if the index is outside of its table, which has `rows` rows. `index`
  /// and `beyond` are both scalars or both vectors of lanes. The kernels of
  /// GPUs do not report such indices.
  virtual void reportIndex(Value index, Value beyond, int64_t rows) {}
  /// Emits the load of copy `copy` of `node`, a load with lanes: a vector of
  /// elements, stored as `type`, from the array that begins at `base`.
  virtual Value createLaneLoad(const Node *node, int copy, Value base,
                               mlir::VectorType type) = 0;
  virtual Value loadBuffer(const kernels::RowBuffer &buffer, int copy);
  /// Emits one step of the loop of a sequential reduction: combines the partial
  /// results `sums` with the input elements at index `index` of the reduced
  /// dimension, and returns the new partial results.
  using SequenceStep = llvm::function_ref<llvm::SmallVector<Value>(
      Value index, llvm::ArrayRef<Value> sums)>;
  using SequenceJoin = llvm::function_ref<llvm::SmallVector<Value>(
      llvm::ArrayRef<Value> sums, llvm::ArrayRef<Value> others)>;
  /// Emits a loop over the part of the reduced dimension that this thread
  /// handles. `start` are the initial partial results, and `join` combines two
  /// sets of partial results.
  virtual llvm::SmallVector<Value> runSequence(const IndexVar *sequence,
                                               llvm::ArrayRef<Value> start,
                                               SequenceStep step,
                                               SequenceJoin join);
  /// Combines the partial results `totals` of all threads that share the
  /// reductions of `group`.
  virtual void joinSequence(llvm::ArrayRef<const kernels::Reduction *> group,
                            int copies, llvm::SmallVector<Value> &totals) {}
  /// Returns whether divisions of scalar indices that fit into 32 bits use
  /// 32-bit arithmetic.
  virtual bool dividesNarrow() const { return false; }
  /// Returns whether a variable has the same value in all lanes of a vector.
  virtual bool isUniform(const IndexVar *var) const {
    return !(var->loops & lane->loops);
  }

  // Defined in EmitNodes.cpp.
  bool isLane(const Node *node) const {
    return lane && node->loops & lane->loops;
  }
  bool isLane(const IndexExpr &index) const {
    return lane && index.loops() & lane->loops;
  }
  /// The values of a row may be computed by several loops over its columns.
  /// Returns the buffer in which an earlier one of these loops stored the
  /// node's value, or null if there is none.
  const kernels::RowBuffer *bufferOf(const Node *node) const;
  /// Returns the value of a node, and emits it first if necessary. If the node
  /// has lanes, returns the vector number `copy` of those that unrolling emits
  /// for it.
  Value emit(const Node *node, int copy = 0);
  Value create(const Node *node, int copy);
  Value createCompute(const Node *node, int copy);
  Value createLoad(const Node *node, int copy);
  Value createRankOffset(const Node *node);
  /// Returns the node's value as a vector; a scalar is broadcast to all lanes.
  Value emitLanes(const Node *node, int copy);
  Value splat(Value scalar);
  Value emitIndex(const IndexExpr &index, int copy = 0);
  Value emitIndexLanes(const IndexExpr &index, int copy);
  Value emitVar(const IndexVar *var, int copy);
  Value emitVarLanes(const IndexVar *var, int copy);
  virtual bool isContiguous(const IndexExpr &index) const;
  /// Returns the value of `index` in the first lane of vector number `copy`.
  Value emitLaneBase(const IndexExpr &index, int copy);
  Value both(Value a, Value b);

  Value address(Value base, Value index, mlir::Type element);
  Value tableAddress(const Node *node);
  Value castIndex(Value index, mlir::Type element);
  Value constantOf(mlir::Type type, double value);
  Value constantIndex(int64_t value);
  mlir::Type storageOf(mlir::Type element);
  mlir::VectorType vectorOf(mlir::Type element) {
    return mlir::VectorType::get({lanes}, element);
  }
  mlir::Type pointerType() {
    return mlir::LLVM::LLVMPointerType::get(b.getContext(), addressSpace);
  }
  /// Returns the number of bytes that an element of type `element` takes in
  /// memory.
  unsigned bytesOf(mlir::Type element) {
    return std::max(1u, storageOf(element).getIntOrFloatBitWidth() / 8);
  }
  /// Returns the outermost scope in which the variables of `loops` are known; a
  /// value that depends on these loops is emitted there.
  Scope &scopeOf(uint64_t loops);
  void moveTo(const Scope &scope);
  mlir::scf::ForOp beginFor(Value begin, Value end, Value step, uint64_t loops,
                            mlir::ValueRange carried);
  void endFor(mlir::scf::ForOp loop, mlir::ValueRange carried);

  // Defined in EmitReductions.cpp.
  /// While an object of this class exists, `scope` is the innermost scope, and
  /// the scopes that are nested in it are hidden. Operations that are emitted
  /// meanwhile precede the loops and branches of the hidden scopes.
  class InnermostScope {
  public:
    InnermostScope(NodeEmitter &emitter, Scope &scope);
    ~InnermostScope();

  private:
    NodeEmitter &emitter;
    mlir::OpBuilder::InsertionGuard guard;
    std::vector<std::unique_ptr<Scope>> hidden;
    mlir::Block *block;
    /// Holds the operations that contain the hidden scopes, in the meantime.
    std::unique_ptr<mlir::Block> rest;
  };

  /// Sequential reductions that are computed by one loop over `sequence`.
  struct SequenceGroup {
    llvm::SmallVector<const kernels::Reduction *> reductions;
    const IndexVar *sequence;
    bool vectors; ///< true if the results are vectors, false if scalars
    int copies;   ///< number of vectors (from unrolling) of each result

    size_t indexOf(size_t number, int copy) const {
      return number * copies + copy;
    }
  };
  llvm::SmallVector<const kernels::Reduction *>
  missingInputs(const kernels::Reduction *reduction);
  SequenceGroup groupOf(const kernels::Reduction *wanted);
  llvm::SmallVector<Value>
  combineAll(const SequenceGroup &group, llvm::ArrayRef<Value> into,
             llvm::function_ref<Value(size_t number, int copy)> valueOf);
  llvm::SmallVector<Value> emitSequence(const SequenceGroup &group);
  void emitSequential(const kernels::Reduction *reduction);
  void
  collectSequential(const Node *node, llvm::SmallPtrSetImpl<const Node *> &seen,
                    llvm::SetVector<const kernels::Reduction *> &found) const;
  llvm::SmallVector<Value> stepSequence(const IndexVar *sequence, Value begin,
                                        Value end, int64_t stride,
                                        llvm::ArrayRef<Value> start,
                                        SequenceStep step);
  Value horizontal(nn::Combiner combiner, Value vector);
  Value identity(nn::Combiner combiner, mlir::Type type);
  Value combine(nn::Combiner combiner, Value a, Value b);

  const kernels::KernelPlan &plan;
  std::string name;
  mlir::ImplicitLocOpBuilder b;
  unsigned addressSpace;
  mlir::Operation *function = nullptr;
  /// The addresses of the kernel's arguments, then of its results.
  llvm::SmallVector<Value> addresses;
  std::vector<std::unique_ptr<Scope>> scopes; ///< outermost first
  /// The values of loop variables, by IndexVar::loop.
  llvm::DenseMap<unsigned, Value> loopValues;
  llvm::DenseMap<mlir::Attribute, mlir::LLVM::GlobalOp> tables;

  int64_t lanes = 1;
  /// The lane variable of the loop over columns that is being emitted, and the
  /// index of this loop in KernelPlan::loops.
  const IndexVar *lane = nullptr;
  size_t loopNumber = 0;
  int copyCount = 1; ///< number of vectors that unrolling emits per value
};

} // namespace cleave::codegen

#endif
