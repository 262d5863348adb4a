// The verification of a pipeline's command lists detects each fault that
// `cleave check` injects into them.

#include "../PipelineSchedule/StepProgram.h"
#include "cleave/Check/Faults.h"

#include "llvm/ADT/STLExtras.h"

#include "gtest/gtest.h"

using namespace cleave;
using pipeline::test::StepProgram;

namespace {

/// Injects the fault at every possible position in the command lists, one at a
/// time, and expects that the first error is from one of these rules of the
/// verification.
void expectFound(const std::string &fault,
                 const std::vector<std::string> &rules) {
  int64_t places = 0;
  for (const char *schedule : {"gpipe", "1f1b"})
    for (int64_t index = 0;; ++index, ++places) {
      StepProgram step(schedule, 4);
      std::string where;
      if (failed(check::injectFault(step.p, fault, index, where)))
        break;
      const std::string verdict = step.verdict();
      EXPECT_TRUE(llvm::any_of(rules,
                               [&](const std::string &rule) {
                                 return verdict.starts_with(rule + ": ");
                               }))
          << where << "\n"
          << verdict;
    }
  EXPECT_GT(places, 1) << fault;
}

TEST(PipelineFaults, SlotReused) {
  expectFound("slot-reused", {"slot", "transfer"});
}

TEST(PipelineFaults, MissingReceive) { expectFound("missing-wait", {"order"}); }

} // namespace
