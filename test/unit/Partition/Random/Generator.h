// Grows random programs: a directed acyclic graph of operations of all
// families over a few arguments, loops and branches among them, with random
// shardings on arguments, results and constraints in between; now and then a
// second function that shares tensors with the first by name. The case follows
// from its seed alone.
//
// Values are drawn so that results can be compared sharply: arguments are small
// integers, so what is computed from them by sums and products is exact in
// f64. What is not exact (after an exponential, a norm, ...) goes only into
// operations that are continuous in it, with a magnitude that is bounded.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_GENERATOR_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_GENERATOR_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cleave::random {

/// SplitMix64 (Steele, Lea and Flood, 2014): any seed is a good one.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() { return mix(state += 0x9E3779B97F4A7C15u); }
  /// In [0, bound).
  int64_t below(int64_t bound) { return next() % uint64_t(bound); }
  int64_t between(int64_t low, int64_t high) {
    return low + below(high - low + 1);
  }
  bool chance(int64_t times, int64_t of) { return below(of) < times; }
  template <typename Range> const auto &pick(const Range &range) {
    return *(std::begin(range) + below(std::size(range)));
  }
  template <typename Range> void shuffle(Range &range) {
    for (size_t i = range.size(); i > 1; --i)
      std::swap(range[i - 1], range[below(i)]);
  }
  static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }

private:
  uint64_t state;
};

/// A mesh, and the sub-axes into which shardings of this case divide its axes.
struct Mesh {
  dist::MeshAttr attr;
  mlir::FlatSymbolRefAttr name;
  /// For each axis, its sub-axes, major first; the whole axis if undivided.
  llvm::SmallVector<llvm::SmallVector<dist::AxisRefAttr>> parts;
};

Mesh randomMesh(Random &random, mlir::MLIRContext *context);

/// A random sharding of a tensor; `mayBePartial`: whether the value may be
/// partial (a sum, maximum or minimum).
dist::ShardingAttr randomSharding(Random &random, const Mesh &mesh,
                                  mlir::RankedTensorType type,
                                  bool mayBePartial);

/// A value of the growing program, and what is known about its elements.
struct Entry {
  mlir::Value value;
  double bound = 0;  // the largest magnitude of an element
  bool exact = true; // integers, free of rounding

  mlir::RankedTensorType type() const {
    return mlir::cast<mlir::RankedTensorType>(value.getType());
  }
  llvm::ArrayRef<int64_t> shape() const { return type().getShape(); }
  int64_t rank() const { return type().getRank(); }
  bool isFloat() const {
    return mlir::isa<mlir::FloatType>(type().getElementType());
  }
};

/// The kind of programs to generate.
struct Style {
  /// Programs to be compiled: one function without loops and branches, with a
  /// name for every tensor. Float inputs of the roles `parameter` and `input`
  /// may have any values; the others are integers.
  bool compiled = false;
  /// Programs in f32, for nn-mixed-precision.
  bool bf16 = false;
};

class Generator {
public:
  Generator(mlir::MLIRContext *context, uint64_t seed, Style style = {});

  /// Generates the program of the seed.
  mlir::OwningOpRef<mlir::ModuleOp> run();

  const Style style;
  Random random;
  mlir::OpBuilder b;
  mlir::Location loc;

  //===--------------------------------------------------------------------===//
  // Operands for the families of operations
  //===--------------------------------------------------------------------===//

  mlir::RankedTensorType floats(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, element);
  }
  mlir::RankedTensorType ints(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, b.getI64Type());
  }
  mlir::RankedTensorType bools(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, b.getI1Type());
  }

  /// A dimension size of this case: few different ones, so that shapes match.
  int64_t size();
  llvm::SmallVector<int64_t> shape(int64_t lowRank, int64_t highRank);

  /// A new function argument; if it need not be exact, it may have any values.
  Entry argument(mlir::RankedTensorType type, bool exact = true);
  /// A float value, preferably one of the program so far.
  Entry any(int64_t lowRank = 0, int64_t highRank = 5);
  /// The same, or a value of integers or booleans, for operations that only
  /// move elements.
  Entry anyKind(int64_t lowRank = 0, int64_t highRank = 5);
  /// An exact float value.
  Entry anyExact(int64_t lowRank, int64_t highRank);
  /// A value of exactly this type; `exact`: it must be exact.
  Entry like(mlir::RankedTensorType type, double bound = 1e6,
             bool exact = false);
  /// The value reshaped to `rank` dimensions.
  Entry reshaped(const Entry &entry, int64_t rank);
  /// The value limited to `bound` in magnitude: unchanged, or its hyperbolic
  /// tangent.
  Entry tamed(const Entry &entry, double bound);

  /// Adds a result to the program.
  void give(mlir::Value value, double bound, bool exact);

  static constexpr int64_t kMaxElements = 160;
  /// The largest magnitude in the program; smaller in loops, where errors grow.
  double maxBound = 1e9;

  //===--------------------------------------------------------------------===//
  // Operands and results of loops and branches
  //===--------------------------------------------------------------------===//

  /// Creates operations at the end of `region`. Their results cannot be read
  /// outside.
  void inside(mlir::Block *region, double bound,
              llvm::function_ref<void()> body);
  /// Adds operations of other families.
  void steps(int64_t count);
  /// The value of type `type` that the region yields: preferably the last one
  /// created in it, with magnitude at most `bound`.
  Entry given(mlir::RankedTensorType type, double bound);
  /// The entry of the last value created in the region, or null.
  const Entry *last() const {
    return pool.size() > outer ? &pool.back() : nullptr;
  }
  /// The nesting depth of regions, and the induction variables of open loops.
  int64_t depth = 0;
  llvm::SmallVector<mlir::Value> counters;

private:
  Entry draw(llvm::function_ref<bool(const Entry &)> fits,
             llvm::function_ref<mlir::RankedTensorType()> other,
             bool exact = true);
  void constrainSome();
  void addFunction(llvm::StringRef name);
  void finishFunction();
  void namePorts();
  void nameTensors();
  void shardPorts();

  Mesh mesh;
  mlir::Type
      element; // the float type; the interpreter computes in double anyway
  double exactBelow; // integers up to this bound are not rounded
  llvm::SmallVector<unsigned> inexact; // arguments
  llvm::SmallVector<int64_t> sizes;
  mlir::Block *block = nullptr;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp func;
  std::vector<Entry> pool;
  size_t outer = 0; // number of entries of `pool` outside open regions
};

/// Creates one operation, or a few that belong together; returns false if no
/// operands fit.
struct Family {
  const char *name;
  int weight;
  bool (*make)(Generator &);
};
llvm::ArrayRef<Family> elementwiseFamilies();
llvm::ArrayRef<Family> shapeFamilies();
llvm::ArrayRef<Family> contractionFamilies();
llvm::ArrayRef<Family> rowFamilies();
llvm::ArrayRef<Family> attentionFamilies();
llvm::ArrayRef<Family> expertFamilies();
llvm::ArrayRef<Family> trainingFamilies();
llvm::ArrayRef<Family> arithmeticFamilies();
llvm::ArrayRef<Family> convolutionFamilies();
llvm::ArrayRef<Family> regionFamilies();

} // namespace cleave::random

#endif
