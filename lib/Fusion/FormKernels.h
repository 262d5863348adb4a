// The fusion of operations into kernels (nn-form-kernels).

#ifndef CLEAVE_LIB_FUSION_FORMKERNELS_H
#define CLEAVE_LIB_FUSION_FORMKERNELS_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Fusion/KernelPlan.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <set>
#include <string>
#include <vector>

namespace cleave::kernels {

/// The maximum number of operands and results of a kernel. A kernel that
/// updates eight parameters replaces eight commands by one, but takes as long
/// to compile as eight kernels.
inline constexpr size_t kMostArguments = 64;

/// Splits a reduction into two, if a kernel with a single loop would be slow.
void splitReduction(nn::ReduceOp op);

/// Where an operation of a host function runs.
enum class Place {
  Host,   ///< run by the host: library call, collective, view
  Inline, ///< recomputed by every kernel that reads it
  Kernel, ///< computed once, by the kernel that contains it
};

/// A node of the scheduling graph: one host operation, or the operations of one
/// kernel.
struct Unit {
  bool isKernel = false;
  llvm::SmallVector<mlir::Operation *> ops; ///< in program order
  llvm::SmallVector<mlir::Value> outputs;   ///< results read outside
  llvm::SmallVector<mlir::Value> inputs;    ///< tensors read from memory
  std::set<int> producers, consumers;       ///< unit numbers
  int first = 0, last = 0; ///< positions of the first and last operation
  int rank = 0;    ///< position in a topological order; unique, with gaps
  int version = 0; ///< number of kernels that were fused into it
  /// A hash of the unit's operations, equal for two units that differ only in
  /// the values that they read.
  size_t kind = 0;
  double cost = 0;
  bool alive = true;
  bool parallel = false; ///< has work for several threads
  /// The number of reductions. Chains of scalar sums run on one thread, so
  /// their number is limited.
  int reductions = 0;
  bool scatters = false; ///< holds an nn.scatter_add
  /// The attribute nn.when: the condition under which the unit runs; null if it
  /// always runs.
  mlir::Attribute when;
};

/// The operations of one host function, greedily fused into units. Each unit is
/// a kernel, or a single operation that the host runs.
class Grouping {
public:
  explicit Grouping(mlir::func::FuncOp func);
  mlir::LogicalResult run();

  /// Returns the units (kernels and host operations) in topological order,
  /// close to program order.
  llvm::SmallVector<const Unit *> schedule() const;
  /// Returns the operations that a kernel recomputes (Place::Inline), in
  /// program order.
  llvm::SmallVector<mlir::Operation *> inlineOps(const Unit &unit) const;
  Place placeOf(mlir::Operation *op) const { return places.lookup(op); }
  /// Returns a name for the kernel that lists its operations, such as
  /// "add_gelu".
  std::string nameOf(const Unit &unit) const;
  /// Returns the number of kernel plans that were computed for candidates of
  /// fusion, which dominates the running time of the pass.
  int64_t numPlans() const { return planCount; }

private:
  void decompose();
  void classify();
  bool isGenerated(mlir::Operation *op);
  bool isFreePlacement(mlir::Operation *op) const;
  void materialize(mlir::Value value);
  void joinChains();
  mlir::LogicalResult createUnits();
  /// Collects the values in memory (function arguments, results of kernels and
  /// of host operations) from which inline operations compute `value`.
  void sources(mlir::Value value, llvm::SetVector<mlir::Value> &found) const;
  void connect();
  void rank();
  size_t kindOf(const Unit &unit) const;
  size_t kindOfPair(const Unit &first, const Unit &second) const;
  std::unique_ptr<KernelPlan> plan(const Unit &unit,
                                   llvm::ArrayRef<mlir::Value> outputs);
  std::optional<llvm::SmallVector<int>> following(int from, int to);
  void rankMerged(int low, int high, llvm::ArrayRef<int> after);
  bool canShareLoops(const Unit &first, const Unit &second,
                     llvm::ArrayRef<mlir::Value> outputs) const;
  bool keepsLongAlive(int earlyNumber, int lateNumber) const;
  Unit united(int a, int b) const;
  bool canMerge(const Unit &first, const Unit &second,
                const Unit &merged) const;
  void replaceByMerged(int a, int b, Unit merged);
  /// Fuses the kernel of unit `b` into that of unit `a`, if this is legal and
  /// cheaper.
  bool tryMerge(int a, int b);
  void mergeAlongEdges();
  bool mergeReaders(const Unit &unit);
  void mergeSiblings();
  llvm::SmallVector<mlir::Value>
  outputsOf(llvm::ArrayRef<mlir::Operation *> ops, int a, int b) const;

  mlir::func::FuncOp func;
  llvm::DenseMap<mlir::Operation *, Place> places;
  llvm::DenseMap<mlir::Operation *, int> positions;
  llvm::DenseMap<mlir::Operation *, int> unitOf;
  /// Number of library calls and collectives before each position.
  std::vector<int> callsBefore;
  /// The operation from which an operation was decomposed: its number in
  /// program order and its mnemonic.
  struct Origin {
    int number;
    std::string name;
    int parts = 1; // number of operations into which it was decomposed
  };
  llvm::DenseMap<mlir::Operation *, Origin> origins;
  std::vector<Unit> units;
  /// Pairs of kernels (units) whose fusion was tried and refused, with the
  /// versions of both units at that time.
  llvm::DenseMap<std::pair<int, int>, std::pair<int, int>> refused;
  /// Pairs of kernels (units) that cannot be fused, or for which the fused
  /// kernel was not estimated to be cheaper than two kernels. A pair is stored
  /// as a hash (kindOfPair) of its operations and types, so that equal pairs
  /// are not tried again.
  std::set<size_t> hopeless;
  /// For each unit (kernel or host operation), the number of the last call of
  /// `following` that visited it. This function searches the scheduling graph
  /// for a path between two units. `searches` counts its calls.
  std::vector<int> seenIn;
  int searches = 0;
  int64_t planCount = 0;
};

} // namespace cleave::kernels

#endif
