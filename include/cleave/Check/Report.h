// What a check found: as JSON with the contract's keys, and as text.

#ifndef CLEAVE_CHECK_REPORT_H
#define CLEAVE_CHECK_REPORT_H

#include "cleave/Check/Compare.h"

#include "llvm/Support/raw_ostream.h"

namespace cleave::check {

struct CheckReport {
  /// The mean loss of each step.
  std::vector<double> shardedLosses, referenceLosses;
  /// What the reference has first that is not defined, for people, "the loss of
  /// step 2 is not finite"; empty: none. Such values are equal, and spread.
  std::string undefined;
  std::vector<TensorReport> tensors;
  ReplicaReport replicas;
  uint64_t seed = 0;
  double tolerance = 0;
  /// The fault that was made on purpose, and where; empty: none.
  std::string fault;
  /// The sharded program did not come to the end of a step.
  bool stopped = false;
  /// The first operation whose value differs, where that was asked for.
  std::string firstDifference;
  /// What was not done, and why.
  std::vector<std::string> notes;

  bool pass() const;
  /// Over the tensors of the exact part, after one step.
  double maxRelError() const;
};

void writeJson(const CheckReport &report, llvm::raw_ostream &out);

/// The worst tensors first, at most `rows` of them (failing ones always), and a
/// line with the verdict.
void writeText(const CheckReport &report, llvm::raw_ostream &out,
               size_t rows = 10);

} // namespace cleave::check

#endif
