// The compiler as a library. It compiles a model, with a configuration, to a
// program for the ranks of a mesh.
//
// The compiler prints nothing and never exits: errors, warnings and remarks are
// diagnostics of the context (Support/Messages.h formats them). Several
// compilers may run at the same time, each with its own context. The shared
// library also contains parts of the runtime (cleave/runtime.h). There,
// cleave_serve and cleave_finish, which only the tools call and only where
// ranks are several processes, print errors and may end the process.

#ifndef CLEAVE_COMPILER_COMPILER_H
#define CLEAVE_COMPILER_COMPILER_H

#include "cleave/Compiler/Backend.h"
#include "cleave/Compiler/Phases.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <string>

namespace cleave::compiler {

/// The phases, in order, after which the program can be printed.
enum class Phase {
  Import,   ///< loads the model
  Train,    ///< adds the loss, the backward pass and the optimizer
  Shard,    ///< makes the per-rank program
  Kernels,  ///< selects library calls and fuses kernels
  Schedule, ///< makes command lists in their final order
  Memory,   ///< gives every value an address
};

/// The purpose of a compilation, and its options.
struct CompilerOptions {
  Purpose purpose = Purpose::Compile;
  bool readWeights = false; ///< missing bytes of weights are an error
  bool allRemarks = false; ///< remarks also say where every sharding comes from
  /// The largest number of bytes of memory that a rank may use, if the key
  /// target.memory is not set; 0 means no limit. If a pipeline with overlapped
  /// collectives exceeds the limit, it is compiled without overlap.
  int64_t memoryLimit = 0;
  /// Called after @loss is derived, before differentiation and partitioning. If
  /// the function fails (it reports the error itself), compilation ends.
  std::function<mlir::LogicalResult(mlir::ModuleOp)> afterLoss;
};

/// A compiled program and the module with planned memory from which it was
/// emitted, and the data of its manifest that cannot be derived from them.
struct Lowered {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  target::ManifestInfo info;
  BackendOptions backend;
  program::Program program;
};

class Compiler {
public:
  using Module = mlir::OwningOpRef<mlir::ModuleOp>;

  /// Loads all needed dialects into `context`. `mesh` is the mesh of ranks,
  /// unless a model in .mlir has its own mesh, which is then used instead.
  Compiler(mlir::MLIRContext &context, Config config, Mesh mesh,
           CompilerOptions options = {});

  /// Loads the model of an .onnx or .mlir file as a module with @forward.
  mlir::FailureOr<Module> load(const std::string &path);

  /// Adds the loss, its gradients and the optimizer, as far as the purpose
  /// needs them. A model for a pipeline becomes a module of modules @stage0,
  /// @stage1, ...
  mlir::LogicalResult train(mlir::ModuleOp model);

  /// Returns the per-rank program, with tiles and collectives. `trained` is the
  /// module after `train`.
  mlir::FailureOr<Module> shard(Module trained);

  /// Runs the phases from `load` up to and including `last`.
  mlir::FailureOr<Module> runUpTo(const std::string &path, Phase last);

  /// Runs all phases, but writes no files.
  mlir::FailureOr<Lowered> lower(const std::string &path);

  /// Runs all phases and writes the artifact into `folder`, which is created
  /// atomically and replaces only another artifact. If the purpose is not
  /// Compile, the memory limit of a CPU rank is its share of this machine's
  /// memory.
  mlir::LogicalResult compile(const std::string &path,
                              const std::string &folder);

  /// Returns the folder of the compiled model in the cache folder `cache`, and
  /// compiles the model first if it is not in the cache. `onWait` is called
  /// once if this process waits for another process that compiles the same
  /// program.
  mlir::FailureOr<std::string>
  compileCached(const std::string &path, const std::string &cache,
                const std::function<void()> &onWait = {});

  const Config &config() const { return settings; }
  const Mesh &mesh() const { return ranks; }

private:
  mlir::FailureOr<Lowered> lowerTrained(const std::string &path,
                                        Module trained);
  void describe(Lowered &lowered, const std::string &path) const;
  mlir::LogicalResult write(Lowered &lowered, const std::string &folder);

  mlir::MLIRContext &context;
  Config settings;
  Mesh ranks;
  CompilerOptions options;
};

/// Returns the device that target.kind names.
program::Device deviceOf(const Config &config);

/// Returns the bytes of this machine's memory per rank if all ranks run on it;
/// 0 if unknown.
int64_t memoryOfRank(const Mesh &mesh);

/// Returns the number of threads of a rank: as configured, or else the number
/// of cores divided by the number of ranks, or 1 if a CUDA device computes.
int64_t threadsPerRank(const Config &config, const Mesh &mesh);

/// Reports an error if a rank needs more than `limit` bytes (0 means no limit)
/// for its share of parameters, gradients and optimizer state alone, even if
/// these are sharded as far as the mesh and ZeRO allow. `model` has @loss.
mlir::LogicalResult checkMemoryFloor(mlir::ModuleOp model, const Config &config,
                                     const Mesh &mesh, int64_t limit);

/// Returns the function that computes the training loss, or null.
mlir::Operation *lossFunctionOf(mlir::ModuleOp model);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_COMPILER_H
