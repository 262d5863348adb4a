// The interface through which a check runs a program: the check sets named
// unsharded tensors, runs functions, and gets named unsharded tensors. The
// program may be interpreted or compiled, sharded or not, and may compute in
// f64 or in the precision in which it is trained.

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

/// An argument or result of a function. Arguments and results with equal role
/// (such as parameter) and name are the same tensor in all functions.
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
  /// Returns the first rank that holds the element with the given row-major
  /// index; may be empty.
  std::function<int64_t(int64_t)> rankOf;
};

/// A running program, as a check sees it. Errors are reported as diagnostics.
class Engine {
public:
  virtual ~Engine() = default;

  virtual bool hasFunction(llvm::StringRef name) const = 0;
  /// Gives every rank its tile of `whole`. Floats are converted to the
  /// program's type. A tensor that the program does not have is ignored.
  virtual mlir::LogicalResult set(const Port &port, const Tensor &whole) = 0;
  virtual mlir::LogicalResult run(llvm::StringRef function) = 0;
  virtual mlir::FailureOr<Gathered> get(const Port &port) = 0;

  /// Starts a section of the recording (see Recording.h): "perturbed" for the
  /// calls with values that are perturbed in their last digits, "steps" for the
  /// calls of the training steps.
  virtual void begin(llvm::StringRef what) {}

  /// Returns whether `getTap` can return the values of all microbatches of a
  /// step, and not only of the last one.
  virtual bool keepsTaps() const { return false; }
  /// Returns the value that a tap had after `microbatch`. A tap is a result
  /// that `cleave check` adds to the program, with role `tap`, to compare it.
  virtual mlir::FailureOr<Gathered> getTap(const Port &port,
                                           int64_t microbatch) {
    return get(port);
  }
};

/// Returns an engine that interprets an unpartitioned or a per-rank program, or
/// the stages of a pipeline in the order of their schedule. The module must
/// outlive the engine.
mlir::FailureOr<std::unique_ptr<Engine>>
makeInterpreterEngine(mlir::ModuleOp module);

struct CompiledOptions {
  program::Device device = program::Device::Cpu;
  /// The architectures of CUDA devices, as in target::KernelOptions.
  std::vector<std::string> architectures;
  /// The number of threads of each rank.
  int64_t threads = 1;
  /// If true, transferred data arrives as early as possible, written by a
  /// thread of the receiving rank. Otherwise, it arrives as late as possible,
  /// at the wait.
  bool arrivesEarly = false;
  /// Options of the compiler, as in BackendOptions (Compiler/Backend.h).
  bool overlap = true;
  std::string cluster;
  bool tf32 = false;
  /// The transport between ranks: local, mpi, or for devices nccl or auto.
  std::string transport = "local";
  /// The optimization level of kernels, 0 to 3.
  unsigned optLevel = 3;
  /// If not null, the program runs on a CPU, and this object records every
  /// value that the check sets, every function that it runs, and every value
  /// that it gets. The program is then also compiled for CUDA devices and
  /// stored in the recording, so that a machine with such a device can repeat
  /// these calls.
  Recording *recording = nullptr;
  std::string recordingName;
  /// If given, this function changes the program's command lists before they
  /// run, for example to inject a fault.
  std::function<mlir::LogicalResult(program::Program &)> change;
  /// If given, set to true if the compiler refuses the program or this machine
  /// cannot run it. This is not an error of the compiler or the runtime.
  bool *refused = nullptr;
};

/// Compiles a per-rank program and returns an engine that runs it. Ranks are
/// threads of this process or, with transport mpi, processes. Memory that is
/// not live is filled with poison values.
mlir::FailureOr<std::unique_ptr<Engine>>
makeCompiledEngine(mlir::ModuleOp local, const CompiledOptions &options);

/// Returns the first rank whose tile contains the element with row-major index
/// `element` of the unsharded tensor.
int64_t firstHolder(dist::MeshAttr mesh, dist::ShardingAttr sharding,
                    llvm::ArrayRef<int64_t> shape, int64_t element);

} // namespace cleave::check

#endif
