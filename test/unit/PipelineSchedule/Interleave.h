// Runs a program in every possible interleaving of its ranks, as an oracle for
// the verifier that shares no code with the verifier. The number of
// interleavings limits it to few ranks and short action lists.

#ifndef CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H
#define CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H

#include "cleave/PipelineSchedule/Verify.h"

#include <string>

namespace cleave::pipeline::test {

struct Outcome {
  std::string wrong;    // a rank's wrong computation or transfer; "": none
  std::string deadlock; // a state that no rank can leave; "": unreachable
  size_t states = 0;
  bool harmless() const { return wrong.empty() && deadlock.empty(); }
};

Outcome interleave(const Program &program);

} // namespace cleave::pipeline::test

#endif // CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H
