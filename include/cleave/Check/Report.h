// The report of a check, as JSON and as text.

#ifndef CLEAVE_CHECK_REPORT_H
#define CLEAVE_CHECK_REPORT_H

#include "cleave/Check/Compare.h"

#include "llvm/Support/raw_ostream.h"

namespace cleave::check {

struct CheckReport {
  /// The mean loss of each step, in f64.
  std::vector<double> shardedLosses, referenceLosses;
  /// The first undefined value of the reference, such as "the loss of step 2 is
  /// not finite", or empty. It is reported because NaN values compare as equal
  /// and propagate, so that the check would find no error.
  std::string undefined;
  std::vector<TensorReport> tensors;
  ReplicaReport replicas;
  uint64_t seed = 0;
  double tolerance = 0;
  /// The kind of the injected fault and the operation that has it; empty if
  /// there is none.
  std::string fault;
  /// True if the sharded program failed to finish a step.
  bool stopped = false;
  /// A description of the first value that differs between the programs. Empty
  /// if none differs, or if the check does not search for it (flag --bisect).
  std::string firstDifference;
  /// Parts of the check that were skipped, and why.
  std::vector<std::string> notes;

  bool pass() const;
  /// Returns the largest relative error of a tensor in f64 after one step.
  double maxRelError() const;
};

void writeJson(const CheckReport &report, llvm::raw_ostream &out);

/// Writes the report as text: a table of the tensors with the largest errors,
/// with at most `rows` rows (but always all failing tensors), and a line with
/// the verdict.
void writeText(const CheckReport &report, llvm::raw_ostream &out,
               size_t rows = 10);

} // namespace cleave::check

#endif
