// The interface of a check to a running program: it sets named unsharded
// tensors, runs functions, and gets named unsharded tensors. The program may be
// interpreted or compiled, sharded or not, in real precision or in f64.

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
  /// The type of the unsharded tensor.
  mlir::RankedTensorType type = {};
  mlir::DictionaryAttr attrs = {};
  /// The argument, or the returned value.
  mlir::Value value = {};

  std::string key() const { return (nn::spell(role) + " " + name).str(); }
  /// For messages: "parameter 'w'".
  std::string describe() const {
    return (nn::spell(role) + " '" + name + "'").str();
  }
};
std::vector<Port> argumentsOf(mlir::func::FuncOp func);
std::vector<Port> resultsOf(mlir::func::FuncOp func);

/// An unsharded tensor, assembled from the tiles of all ranks.
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

  /// Tells a recording what the following calls are for: "stirred" (with values
  /// perturbed in their last digits) or "steps".
  virtual void begin(llvm::StringRef what) {}

  /// Whether `getTap` can return the values of all microbatches of a step, not
  /// only of the last.
  virtual bool keepsTaps() const { return false; }
  /// A value of role `tap` after `microbatch`.
  virtual mlir::FailureOr<Gathered> getTap(const Port &port,
                                           int64_t microbatch) {
    return get(port);
  }
};

/// Interprets a global or a per-rank program, or the stages of a pipeline as
/// their schedule says. The module must outlive the engine.
mlir::FailureOr<std::unique_ptr<Engine>>
makeInterpreterEngine(mlir::ModuleOp module);

struct CompiledOptions {
  program::Device device = program::Device::Cpu;
  /// For CUDA devices, as in target::KernelOptions.
  std::vector<std::string> architectures;
  /// Threads of each rank.
  int64_t threads = 1;
  /// Whether transferred data arrives as early as possible, written by a thread
  /// of the rank. If not, it arrives as late as possible, at the wait.
  bool arrivesEarly = false;
  /// As in BackendOptions.
  bool overlap = true;
  std::string cluster;
  bool tf32 = false;
  /// How ranks communicate: local | mpi | nccl | auto (for devices).
  std::string transport = "local";
  /// Optimisation level of kernels, 0 to 3.
  unsigned optLevel = 3;
  /// If not null: records the calls, with a program for CUDA devices, while a
  /// CPU executes them.
  Recording *recording = nullptr;
  std::string recordingName;
  /// If given, changes the command lists before they run.
  std::function<mlir::LogicalResult(program::Program &)> change;
  /// If given: set to true if the program is refused, by the compiler or
  /// because this machine cannot run it, which is no fault of compiler or
  /// runtime.
  bool *refused = nullptr;
};

/// Compiles and runs a per-rank program. Ranks are threads of this process or,
/// with mpi, processes. Memory that is not live is poisoned.
mlir::FailureOr<std::unique_ptr<Engine>>
makeCompiledEngine(mlir::ModuleOp local, const CompiledOptions &options);

/// The first rank whose tile has an element of the whole tensor.
int64_t firstHolder(dist::MeshAttr mesh, dist::ShardingAttr sharding,
                    llvm::ArrayRef<int64_t> shape, int64_t element);

} // namespace cleave::check

#endif
