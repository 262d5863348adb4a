// The compiler as a library: from a model and a configuration to a program for
// the ranks of a mesh.
//
// It prints nothing and never exits: errors, warnings and remarks are
// diagnostics of the context (Support/Messages.h turns them into lines).
// Several compilers may run at once, each with a context of its own.

#ifndef CLEAVE_COMPILER_COMPILER_H
#define CLEAVE_COMPILER_COMPILER_H

#include "cleave/Compiler/Backend.h"
#include "cleave/Compiler/Phases.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <string>

namespace cleave::compiler {

/// Phases after which the program can be looked at, in order.
enum class Phase {
  Import,   ///< the model
  Train,    ///< with the backward pass and the optimizer
  Shard,    ///< the per-rank program
  Kernels,  ///< library calls and fused kernels
  Schedule, ///< command lists in their final order
  Memory,   ///< with an address for every value
};

/// What a program is compiled for.
struct CompilerOptions {
  Purpose purpose = Purpose::Compile;
  bool readWeights = false; ///< missing bytes of weights are an error
  bool allRemarks = false; ///< remarks also say where every sharding comes from
  /// Bytes of memory of a rank, if target.memory does not say it; 0: no limit.
  /// A pipeline that needs more with overlapped collectives gets the order
  /// without overlap, if that fits.
  int64_t memoryLimit = 0;
  /// Called once @loss is derived, before differentiation and partitioning. An
  /// error, which it reports, ends the compilation.
  std::function<mlir::LogicalResult(mlir::ModuleOp)> afterLoss;
};

/// A planned program, and the other contents of its manifest.
struct Lowered {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  target::ManifestInfo info;
  BackendOptions backend;
  program::Program program;
};

class Compiler {
public:
  using Module = mlir::OwningOpRef<mlir::ModuleOp>;

  /// Loads all needed dialects into `context`. `mesh` is the mesh of ranks; a
  /// model in .mlir with a mesh of its own is compiled for that one.
  Compiler(mlir::MLIRContext &context, Config config, Mesh mesh,
           CompilerOptions options = {});

  /// The model of an .onnx or .mlir file: a module with @forward.
  mlir::FailureOr<Module> load(const std::string &path);

  /// Adds the loss, its gradients and the optimizer, as far as the purpose
  /// needs them. A model for a pipeline becomes a module of modules @stage0,
  /// @stage1, ...
  mlir::LogicalResult train(mlir::ModuleOp model);

  /// The per-rank program, with tiles and collectives. `trained` is the result
  /// of `train`.
  mlir::FailureOr<Module> shard(Module trained);

  /// The phases from `load` up to and including `last`.
  mlir::FailureOr<Module> runUpTo(const std::string &path, Phase last);

  /// All phases except writing files.
  mlir::FailureOr<Lowered> lower(const std::string &path);

  /// All phases; writes the artifact into `folder`, which appears whole or not
  /// at all and replaces only another artifact. For other purposes than
  /// Compile, the memoryLimit of CPU ranks is what this machine has for each.
  mlir::LogicalResult compile(const std::string &path,
                              const std::string &folder);

  /// The folder of the compiled model in the cache `cache`, compiled now if it
  /// is not there. `onWait` is called once if another process compiles the same
  /// and this one waits for it.
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

/// The device that target.kind names.
program::Device deviceOf(const Config &config);

/// Bytes of this machine's memory for each rank, with all ranks on it; 0: not
/// known.
int64_t memoryOfRank(const Mesh &mesh);

/// Threads of a rank: as configured, else the number of cores over that of
/// ranks, or one if a device computes.
int64_t threadsPerRank(const Config &config, const Mesh &mesh);

/// An error where a rank needs more than `limit` bytes (0: any) for its share
/// of parameters, gradients and optimizer state alone, if they are sharded as
/// far as the mesh and ZeRO allow. `model`: with @loss.
mlir::LogicalResult checkMemoryFloor(mlir::ModuleOp model, const Config &config,
                                     const Mesh &mesh, int64_t limit);

/// The function of the training loss, or null.
mlir::Operation *lossFunctionOf(mlir::ModuleOp model);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_COMPILER_H
