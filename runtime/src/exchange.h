// The boxes of one rank in an exchange.
#ifndef CLEAVE_RUNTIME_EXCHANGE_H
#define CLEAVE_RUNTIME_EXCHANGE_H

#include "transport.h"

namespace cleave {

// Fills the part's pieces and strides. Throws where the tiles do not fit the
// mesh or the buffers, or some element is held by no member.
void prepareExchange(const program::Program &program,
                     const program::Exchange &exchange,
                     const std::vector<int> &members, int self, Part &part);

} // namespace cleave

#endif // CLEAVE_RUNTIME_EXCHANGE_H
