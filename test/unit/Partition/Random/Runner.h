// Runs a program on one device and, partitioned, on all ranks, and compares.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_RUNNER_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_RUNNER_H

#include "Coverage.h"
#include "Generator.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Pass/PassManager.h"

namespace cleave::random {

/// How a case ended.
struct Outcome {
  enum Kind {
    Passed,
    BadProgram,  // not valid, or not to be interpreted: the generator's mistake
    Refused,     // a pass of the pipeline failed
    Unproven,    // dist-verify-variance refused the per-rank program
    NotHonoured, // a requested sharding is missing
    RunFailed,   // the per-rank program cannot be interpreted
    ReplicaDiffers, // copies of one element are not equal to the bit
    WrongResult,
    // Of compiled programs:
    NotCompiled,
    NotRun,
    Crashed,
    WrongCompiled, // in f64
    WrongRounding, // in the program's own precision
    Disordered,    // the recorder found an access that nothing orders, ...
  };
  Kind kind = Passed;
  std::string message;
  explicit operator bool() const { return kind == Passed; }
};
llvm::StringRef name(Outcome::Kind kind);

/// A mistake that is injected into the partitioner's output after one of its
/// passes.
struct Bug {
  const char *name;
  const char *description;
  /// The command-line argument of the pass after which the bug is injected.
  const char *after;
  /// Injects the bug. Returns false if the program has no operation where the
  /// bug is possible.
  bool (*plant)(mlir::ModuleOp);
};

class Runner {
public:
  /// If `prove` is false, dist-verify-variance does not run.
  explicit Runner(mlir::MLIRContext *context, bool prove = true);
  virtual ~Runner();
  mlir::MLIRContext *context() const { return passes.getContext(); }
  bool proves() const { return prove; }

  /// Runs a case. The values of the arguments depend only on `seed`. `coverage`
  /// and `bug` may be null; `planted` is set to whether the bug could be
  /// injected.
  virtual Outcome run(mlir::ModuleOp global, uint64_t seed,
                      Coverage *coverage = nullptr, const Bug *bug = nullptr,
                      bool *planted = nullptr);

protected:
  /// A hook for further checks of a program whose interpreted ranks agree with
  /// one device.
  virtual Outcome runLocal(mlir::ModuleOp global, mlir::ModuleOp local,
                           uint64_t seed) {
    return {};
  }
  /// Whether the per-rank program is interpreted.
  bool interprets = true;
  std::string diagnostics;

private:
  struct Watch;
  mlir::PassManager passes;
  bool prove;
  Watch *watch; // owned by the pass manager
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace cleave::random

#endif
