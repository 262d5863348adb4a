// The findings of the verifier, and the rules that are checked on the program
// alone, without tables that the verifier has built.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H
#define CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H

#include "Deadlock.h"

namespace cleave::pipeline {

// A position in a rank's list; rank -1 means no position.
struct PassAt {
  int rank = -1;
  size_t index = 0;
};

class Report {
public:
  Report(const Program &program, size_t most) : program(program), most(most) {}

  void add(Finding finding) {
    if (findings.size() < most)
      findings.push_back(std::move(finding));
  }

  // Adds a finding, with a message that begins with the given item.
  void add(const std::string &rule, int rank, size_t index,
           const std::string &why, std::vector<PassAt> others = {}) {
    Finding finding{rule, "", {placeOf(program, rank, index)}};
    finding.message = describe(finding.places[0]) + " " + why;
    for (const PassAt &other : others)
      finding.places.push_back(placeOf(program, other.rank, other.index));
    add(std::move(finding));
  }

  std::string at(const PassAt &place) const {
    Place described = placeOf(program, place.rank, place.index);
    return described.text + " (rank " + std::to_string(place.rank) +
           ", action " + std::to_string(place.index) + ")";
  }

  std::vector<Finding> findings;

private:
  const Program &program;
  size_t most;
};

// Checks the rules of StageRules.cpp: that gradients are reduced once, that
// passes find parameters gathered, and that no rank exceeds its peak of
// activations.
void checkStages(const Program &program, Report &report);

// Matches the collectives of all ranks, and adds each one to `joints`, in the
// order in which its communicator runs them.
void matchCollectives(const Program &program, std::vector<Joint> &joints,
                      Report &report);

// Checks that ranks with the same pipeline index have equal lists.
void compareReplicas(const Program &program, Report &report);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H
