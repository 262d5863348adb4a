// The report of a check, as JSON and as text.

#ifndef CLEAVE_CHECK_REPORT_H
#define CLEAVE_CHECK_REPORT_H

#include "cleave/Check/Compare.h"

#include "llvm/Support/raw_ostream.h"

namespace cleave::check {

struct CheckReport {
  /// The mean loss of each step.
  std::vector<double> shardedLosses, referenceLosses;
  /// The first undefined value of the reference, such as "the loss of step 2 is
  /// not finite"; empty: none. NaN values compare as equal, and propagate.
  std::string undefined;
  std::vector<TensorReport> tensors;
  ReplicaReport replicas;
  uint64_t seed = 0;
  double tolerance = 0;
  /// The injected fault, and its place; empty: none.
  std::string fault;
  /// Whether the sharded program failed to finish a step.
  bool stopped = false;
  /// The first operation whose value differs, if requested.
  std::string firstDifference;
  /// Parts of the check that were skipped, and why.
  std::vector<std::string> notes;

  bool pass() const;
  /// The largest relative error in the exact part, after one step.
  double maxRelError() const;
};

void writeJson(const CheckReport &report, llvm::raw_ostream &out);

/// The worst tensors first, at most `rows` of them (failing ones always), and a
/// line with the verdict.
void writeText(const CheckReport &report, llvm::raw_ostream &out,
               size_t rows = 10);

} // namespace cleave::check

#endif
