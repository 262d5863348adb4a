// Collects the findings of the verifier, and declares those of its checks that
// only read the lists of the ranks (Program). The other checks, in Verify.cpp,
// use an index of passes and transfers that the verifier builds.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H
#define CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H

#include "Deadlock.h"

namespace cleave::pipeline {

// The position of an item in a rank's list; rank -1 means no position.
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

// Checks the rules of StageRules.cpp: gradients are reduced once, parameters
// are gathered before a forward or backward pass reads them, and the peak
// number of activations on each rank is the one that the simulation of the
// schedule gave.
void checkStages(const Program &program, Report &report);

// Matches the collectives of all ranks, and adds each one to `joints`, in the
// order in which its communicator runs them.
void matchCollectives(const Program &program, std::vector<Joint> &joints,
                      Report &report);

// A pipeline has replicas along the other mesh axes. Checks that all ranks with
// the same pipeline index have equal lists of items.
void compareReplicas(const Program &program, Report &report);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_REPORT_H
