// Prepares an exchange, the collective that changes the tiling of a tensor, for
// one rank: which ranges of elements the rank sends and receives.
#ifndef CLEAVE_RUNTIME_EXCHANGE_H
#define CLEAVE_RUNTIME_EXCHANGE_H

#include "transport.h"

namespace cleave {

// Computes the rectangular ranges of elements that this member sends and
// receives (Part::pieces), and the strides of its tiles. Throws if the tiles do
// not fit the mesh or the buffers, or if a member needs an element that no
// member holds.
void prepareExchange(const program::Program &program,
                     const program::Exchange &exchange,
                     const std::vector<int> &members, int self, Part &part);

} // namespace cleave

#endif // CLEAVE_RUNTIME_EXCHANGE_H
