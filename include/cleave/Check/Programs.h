// Creates the programs that `cleave check` compares: the partitioned program,
// with an injected fault if requested, and the unpartitioned reference.

#ifndef CLEAVE_CHECK_PROGRAMS_H
#define CLEAVE_CHECK_PROGRAMS_H

#include "cleave/Check/Check.h"
#include "cleave/Check/Recording.h"
#include "cleave/Config/Load.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave::check {

/// The flags of `cleave check` that determine the programs that it runs.
struct CheckedPrograms {
  std::string inject;               ///< a kind of fault; empty: none
  std::string against = "compiled"; ///< or "interpreter"
  std::string record;               ///< the folder of a recording; empty: none
  bool interpret = false;           ///< compiles nothing
  int64_t injectIndex = -1;         ///< the place of the fault; -1: the middle
};

/// The values that are added to the results of pipeline stages, so that a check
/// can compare them.
enum class Taps { None, Gradients, Values };

/// Creates the engines of a check: the interpreted or compiled programs that
/// the check runs (see Engine). Owns the modules from which they are created.
/// Failures are reported on the context of the module.
class Programs {
public:
  using Module = mlir::OwningOpRef<mlir::ModuleOp>;

  /// `transport` is the transport of the sharded program, as in
  /// CompiledOptions.
  Programs(const CheckedPrograms &programs, const Config &config,
           const Mesh &mesh, std::string transport);

  /// The recorded calls, if requested.
  std::unique_ptr<Recording> recording;

  /// A description of the injected fault; empty if there is none.
  std::string fault;

  /// The model as loaded, before it is cut into pipeline stages. Empty if there
  /// is no pipeline.
  Module untrained;

  /// Returns the stages of a pipeline on a mesh. `taps` selects the values that
  /// are added to the results, so that a check can compare them (taps): all
  /// values, only gradients, or none.
  mlir::FailureOr<Module> stages(const Mesh &mesh, Taps taps);

  /// Returns the partitioned program, with the requested fault. For a pipeline,
  /// `taps` selects the values that are added to the results. In any other
  /// program, `global` already has these additional results.
  mlir::FailureOr<Module> partition(mlir::ModuleOp global,
                                    Taps taps = Taps::Gradients);

  /// Returns an engine for a partitioned program, in f64 if `wide`.
  mlir::FailureOr<Engine *> sharded(mlir::ModuleOp local, bool wide);

  /// Returns an engine for the unpartitioned program `global`.
  mlir::FailureOr<Engine *> reference(mlir::ModuleOp global, bool wide);

  /// An engine that interprets a program, in f64.
  mlir::FailureOr<Engine *> interpret(mlir::ModuleOp module);

private:
  int64_t faultIndex(mlir::ModuleOp local);
  bool breaksCommands() const;
  CompiledOptions optionsFor(bool wide, const Mesh &mesh) const;
  mlir::FailureOr<Engine *> compile(mlir::ModuleOp local, bool wide,
                                    const Mesh &mesh, bool isBroken,
                                    const std::string &transport);

  // The name of the place at which the first fault was injected, and the number
  // of earlier places with the same name.
  std::optional<std::string> brokenName;
  int64_t before = 0;

  const CheckedPrograms &programs;
  const Config &config;
  const Mesh &mesh;
  const std::string transport; // of the sharded program
  std::vector<Module> modules;
  std::vector<std::unique_ptr<Engine>> engines;
};

} // namespace cleave::check

#endif // CLEAVE_CHECK_PROGRAMS_H
