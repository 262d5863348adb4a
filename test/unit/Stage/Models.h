// Models to cut, as text: @forward and @loss in f64.

#ifndef CLEAVE_TEST_UNIT_STAGE_MODELS_H
#define CLEAVE_TEST_UNIT_STAGE_MODELS_H

#include <cstdint>
#include <string>

namespace cleave::test {

/// Embedding, `layers` layers of attention and MLP, and a head with the
/// embedding's table.
std::string gptModel(int layers);
/// An encoder whose output every layer of the decoder reads, with the decoder's
/// embedding computed first, and one table for both.
std::string encoderDecoderModel(int layers);
/// A random graph of `size` operations: skips over any distance, parameters
/// read several times, integers, what inputs or parameters alone make, and
/// several outputs.
std::string randomModel(uint64_t seed, int size);

} // namespace cleave::test

#endif
