// What nn-form-kernels is made of.

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

/// What a kernel reads and writes, at most: one that updates eight parameters
/// saves seven commands, and is compiled in the time of eight.
inline constexpr size_t kMostArguments = 64;

/// Rewrites a reduction as two where one loop would be slow.
void splitReduction(nn::ReduceOp op);

/// What becomes of an operation of a host function.
enum class Place {
  Host,   ///< stays: library, collective, free placement
  Inline, ///< computed again by every kernel that reads it
  Kernel, ///< computed once, by the kernel of its unit
};

/// A node of the graph that is scheduled: one host operation, or the operations
/// of one kernel.
struct Unit {
  bool isKernel = false;
  llvm::SmallVector<mlir::Operation *> ops; ///< in program order
  llvm::SmallVector<mlir::Value> outputs;   ///< read outside
  llvm::SmallVector<mlir::Value> inputs; ///< of many elements, read from memory
  std::set<int> producers, consumers;    ///< numbers of units
  int first = 0, last = 0; ///< positions of the first and last operation
  int rank = 0;            ///< in a topological order; unique, with gaps
  int version = 0;         ///< how often others were merged into it
  /// Equal for units that differ in the values they read alone.
  size_t kind = 0;
  double cost = 0;
  bool alive = true;
  bool parallel = false; ///< threads share its work
  /// Rows of one row each cannot be shared by threads, so they stay small.
  int reductions = 0;
  bool scatters = false; ///< holds an nn.scatter_add
  mlir::Attribute when;  ///< the condition under which it runs; null: always
};

/// The operations of one host function as units, merged greedily.
class Grouping {
public:
  explicit Grouping(mlir::func::FuncOp func);
  mlir::LogicalResult run();

  /// Units in an order that respects their edges, close to the program's.
  llvm::SmallVector<const Unit *> schedule() const;
  /// Operations that a kernel repeats for itself, in program order.
  llvm::SmallVector<mlir::Operation *> inlineOps(const Unit &unit) const;
  Place placeOf(mlir::Operation *op) const { return places.lookup(op); }
  /// "add_gelu" of a kernel's operations.
  std::string nameOf(const Unit &unit) const;
  /// How many kernels were planned to decide: most of the time it takes.
  int64_t numPlans() const { return planCount; }

private:
  void decompose();
  void classify();
  bool isGenerated(mlir::Operation *op);
  bool isFreePlacement(mlir::Operation *op) const;
  void materialize(mlir::Value value);
  void joinChains();
  mlir::LogicalResult createUnits();
  /// The results of kernels or host units, and arguments, that the value comes
  /// from through inline operations.
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
  bool keepsLongAlive(const Unit &early, const Unit &late, int earlyNumber,
                      int lateNumber) const;
  /// Merges two units into the first if that is legal and cheaper.
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
  /// The operation that a decomposed one came from: number and mnemonic.
  struct Origin {
    int number;
    std::string name;
    int parts = 1; // operations that it was decomposed into
  };
  llvm::DenseMap<mlir::Operation *, Origin> origins;
  std::vector<Unit> units;
  /// Pairs that were not merged, with the versions that were compared.
  llvm::DenseMap<std::pair<int, int>, std::pair<int, int>> refused;
  /// Kinds of pairs of which no plan is cheaper than the two.
  std::set<size_t> hopeless;
  /// The last search for a path that met a unit, and the number of them.
  std::vector<int> seenIn;
  int searches = 0;
  int64_t planCount = 0;
};

} // namespace cleave::kernels

#endif
