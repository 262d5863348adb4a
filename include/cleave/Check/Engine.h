// What a check needs of a running program: named whole tensors in, functions
// run, named whole tensors out. One program behind it may be interpreted or
// compiled, sharded or not, in real precision or in f64.

#ifndef CLEAVE_CHECK_ENGINE_H
#define CLEAVE_CHECK_ENGINE_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Interfaces/Tensor.h"
#include "cleave/program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <memory>
#include <string>

namespace cleave::check {

class Recording;

/// An argument or result of a function: the same role and name is the same
/// tensor in every function.
struct Port {
  std::optional<nn::Role> role;
  std::string name;
  /// Of the whole tensor.
  mlir::RankedTensorType type = {};
  mlir::DictionaryAttr attrs = {};
  /// The argument, or what is returned.
  mlir::Value value = {};

  std::string key() const { return (nn::spell(role) + " " + name).str(); }
  /// For people: "parameter 'w'".
  std::string describe() const {
    return (nn::spell(role) + " '" + name + "'").str();
  }
};
std::vector<Port> argumentsOf(mlir::func::FuncOp func);
std::vector<Port> resultsOf(mlir::func::FuncOp func);

/// A whole tensor put together from what all ranks hold.
struct Gathered {
  Tensor whole;
  /// The largest difference between two ranks' copies of one element.
  double replicaDifference = 0;
  /// The first rank that holds an element, by row-major index; may be empty.
  std::function<int64_t(int64_t)> rankOf;
};

/// Errors are reported as diagnostics.
class Engine {
public:
  virtual ~Engine() = default;

  virtual bool hasFunction(llvm::StringRef name) const = 0;
  /// Gives every rank its part. Floats are converted to the program's type. A
  /// tensor that the program does not have is ignored.
  virtual mlir::LogicalResult set(const Port &port, const Tensor &whole) = 0;
  virtual mlir::LogicalResult run(llvm::StringRef function) = 0;
  virtual mlir::FailureOr<Gathered> get(const Port &port) = 0;

  /// What the calls that follow are for, to who records them: "stirred", of
  /// values that differ in their last digits, or "steps".
  virtual void begin(llvm::StringRef what) {}

  /// Whether `getTap` knows more than the last microbatch of a step.
  virtual bool keepsTaps() const { return false; }
  /// A value of role `tap` as `microbatch` left it.
  virtual mlir::FailureOr<Gathered> getTap(const Port &port,
                                           int64_t microbatch) {
    return get(port);
  }
};

/// Interprets a global or a local program, or the stages of a pipeline as their
/// schedule says. The module must outlive it.
mlir::FailureOr<std::unique_ptr<Engine>>
makeInterpreterEngine(mlir::ModuleOp module);

struct CompiledOptions {
  program::Device device = program::Device::Cpu;
  /// Of CUDA devices, as in target::KernelOptions.
  std::vector<std::string> architectures;
  /// Threads of each rank.
  int64_t threads = 1;
  /// Data that is on its way arrives as early as it may, from a thread of the
  /// rank, or else as late as it may, when it is waited for.
  bool arrivesEarly = false;
  /// As in BackendOptions.
  bool overlap = true;
  std::string cluster;
  bool tf32 = false;
  /// How ranks talk: local | mpi | nccl | auto (of devices).
  std::string transport = "local";
  /// How hard kernels are optimised, 0 to 3.
  unsigned optLevel = 3;
  /// Where the calls are written down, with a program for CUDA devices, while a
  /// CPU answers them.
  Recording *recording = nullptr;
  std::string recordingName;
  /// Changes the command lists before they run, where it is given.
  std::function<mlir::LogicalResult(program::Program &)> change;
  /// Set, where it is given, if the program is one that cannot be compiled, or
  /// not served by this machine: the fault is not of what compiles or runs it.
  bool *refused = nullptr;
};

/// Compiles a local program and runs it, its ranks threads of this process or,
/// with mpi, processes. Memory that is not live is poisoned.
mlir::FailureOr<std::unique_ptr<Engine>>
makeCompiledEngine(mlir::ModuleOp local, const CompiledOptions &options);

/// The first rank whose tile has an element of the whole tensor.
int64_t firstHolder(dist::MeshAttr mesh, dist::ShardingAttr sharding,
                    llvm::ArrayRef<int64_t> shape, int64_t element);

} // namespace cleave::check

#endif
