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
  /// The kind of the fault to inject (see Faults.h); empty: none.
  std::string inject;
  /// What runs the unsharded program in f64: "compiled" or "interpreter".
  std::string against = "compiled";
  /// The folder in which the check is recorded (see Recording.h); empty: none.
  std::string record;
  /// True if both programs are interpreted, and nothing is compiled.
  bool interpret = false;
  /// Which of the operations that can have the fault gets it, as an index into
  /// `faultPlaces`; -1: the middle one.
  int64_t injectIndex = -1;
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

  /// Records the calls to the engines; null if no recording is requested.
  std::unique_ptr<Recording> recording;

  /// A description of the injected fault; empty if there is none.
  std::string fault;

  /// The model as loaded, before it is cut into pipeline stages. Null if there
  /// is no pipeline.
  Module untrained;

  /// Cuts the model into pipeline stages and partitions them for `mesh`. `taps`
  /// selects the values that are added to the results of the stages, so that a
  /// check can compare them: all values, only gradients, or none.
  mlir::FailureOr<Module> stages(const Mesh &mesh, Taps taps);

  /// Returns the partitioned program, with the requested fault. For a pipeline,
  /// `taps` selects the values that are added to the results. In any other
  /// program, `global` already has these additional results.
  mlir::FailureOr<Module> partition(mlir::ModuleOp global,
                                    Taps taps = Taps::Gradients);

  /// Returns an engine that runs the partitioned program `local`, in f64 if
  /// `wide`, else in the precision of training.
  mlir::FailureOr<Engine *> sharded(mlir::ModuleOp local, bool wide);

  /// Returns an engine that runs the unpartitioned program `global` on one
  /// rank.
  mlir::FailureOr<Engine *> reference(mlir::ModuleOp global, bool wide);

  /// Returns an engine that interprets a program in f64.
  mlir::FailureOr<Engine *> interpret(mlir::ModuleOp module);

private:
  int64_t faultIndex(mlir::ModuleOp local);
  bool breaksCommands() const;
  CompiledOptions optionsFor(bool wide, const Mesh &mesh) const;
  mlir::FailureOr<Engine *> compile(mlir::ModuleOp local, bool wide,
                                    const Mesh &mesh, bool isBroken,
                                    const std::string &transport);

  // A check may partition the program several times, for example with other
  // results. Each time, the fault is injected into the same operation: the one
  // with the description `brokenName` that is preceded by `before` operations
  // with the same description in the list of `faultPlaces`.
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
