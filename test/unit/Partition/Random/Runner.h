// Runs a program on one device and, partitioned, on all ranks, and compares.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_RUNNER_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_RUNNER_H

#include "Coverage.h"
#include "Generator.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Pass/PassManager.h"

namespace cleave::random {

/// The outcome of a case.
struct Outcome {
  enum Kind {
    Passed,
    BadProgram,     // invalid or not interpretable: a bug of the generator
    Refused,        // a pass of the pipeline failed
    Unproven,       // dist-verify-variance refused the local program
    NotHonoured,    // a requested sharding is missing
    RunFailed,      // the local program cannot be interpreted
    ReplicaDiffers, // replicas are not equal bit by bit
    WrongResult,
    // Of compiled programs:
    NotCompiled,
    NotRun,
    Crashed,
    WrongCompiled, // in f64
    WrongRounding, // in the program's own precision
    Disordered,    // the recorder found an unordered access, ...
  };
  Kind kind = Passed;
  std::string message;
  explicit operator bool() const { return kind == Passed; }
};
llvm::StringRef name(Outcome::Kind kind);

/// A change that breaks the partitioner's result after one of its passes.
struct Bug {
  const char *name;
  const char *description;
  /// The argument of the pass after which the change is made.
  const char *after;
  /// Returns whether the program had a place for the bug.
  bool (*plant)(mlir::ModuleOp);
};

class Runner {
public:
  /// Without `prove`, dist-verify-variance is not run.
  explicit Runner(mlir::MLIRContext *context, bool prove = true);
  virtual ~Runner();
  mlir::MLIRContext *context() const { return passes.getContext(); }
  bool proves() const { return prove; }

  /// `seed` determines the values of arguments. `coverage` and `bug` may be
  /// null; `planted` is set to whether the bug found a place.
  virtual Outcome run(mlir::ModuleOp global, uint64_t seed,
                      Coverage *coverage = nullptr, const Bug *bug = nullptr,
                      bool *planted = nullptr);

protected:
  /// Further checks of a program whose interpreted ranks agree.
  virtual Outcome runLocal(mlir::ModuleOp global, mlir::ModuleOp local,
                           uint64_t seed) {
    return {};
  }
  /// Whether the local program is interpreted.
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
