// Runs a program in every order in which its ranks could: an oracle for the
// verifier that shares nothing with it. For a few ranks and short lists.

#ifndef CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H
#define CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H

#include "cleave/PipelineSchedule/Verify.h"

#include <string>

namespace cleave::pipeline::test {

struct Outcome {
  std::string wrong;    // what a rank computes or moves wrongly; "": nothing
  std::string deadlock; // a state that no rank leaves; "": none is reachable
  size_t states = 0;
  bool harmless() const { return wrong.empty() && deadlock.empty(); }
};

Outcome interleave(const Program &program);

} // namespace cleave::pipeline::test

#endif // CLEAVE_TEST_UNIT_PIPELINE_INTERLEAVE_H
