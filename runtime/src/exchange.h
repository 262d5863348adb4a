// Prepares an exchange for one rank: which boxes it sends and receives.
#ifndef CLEAVE_RUNTIME_EXCHANGE_H
#define CLEAVE_RUNTIME_EXCHANGE_H

#include "transport.h"

namespace cleave {

// Computes the boxes that this member sends and receives (Part::pieces), and
// the strides of its tiles. Throws if the tiles do not fit the mesh or the
// buffers, or if no member holds some element.
void prepareExchange(const program::Program &program,
                     const program::Exchange &exchange,
                     const std::vector<int> &members, int self, Part &part);

} // namespace cleave

#endif // CLEAVE_RUNTIME_EXCHANGE_H
