// Computes the traffic of a collective and the links that it uses, for the
// other files in this folder.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINTRAFFIC_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINTRAFFIC_H

#include "cleave/Explain/Explain.h"

namespace cleave {

/// Returns the rank's coordinates on the mesh's axes.
std::vector<int64_t> coordinatesOf(const program::Program &program,
                                   int64_t rank);

/// Returns the class of the links that a collective uses: "inter" if one of its
/// groups spans several nodes.
std::string linkOf(const program::Program &program,
                   const program::Collective &collective);

/// Returns the seconds in which a rank sends (or receives) `bytes` in a group
/// of `groupSize` ranks.
double secondsOf(const LinkClass &link, int64_t bytes, int64_t groupSize);

} // namespace cleave

#endif
