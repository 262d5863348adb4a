// What a collective moves, and over which links, for the parts of Explain.cpp.

#ifndef CLEAVE_LIB_EXPLAIN_EXPLAINTRAFFIC_H
#define CLEAVE_LIB_EXPLAIN_EXPLAINTRAFFIC_H

#include "cleave/Explain/Explain.h"

namespace cleave {

/// The rank's coordinates on the mesh's axes.
std::vector<int64_t> coordinatesOf(const program::Program &program,
                                   int64_t rank);

/// The class of the links that a collective goes over: "inter" where one of its
/// groups leaves a node.
std::string linkOf(const program::Program &program,
                   const program::Collective &collective);

/// Seconds of a rank that sends, or receives, so many bytes to, or from, a
/// group of so many.
double secondsOf(const LinkClass &link, int64_t bytes, int64_t groupSize);

} // namespace cleave

#endif
