// Models to be cut into stages, as text: @forward and @loss in f64.

#ifndef CLEAVE_TEST_UNIT_STAGE_MODELS_H
#define CLEAVE_TEST_UNIT_STAGE_MODELS_H

#include <cstdint>
#include <string>

namespace cleave::test {

/// An embedding, `layers` layers of attention and MLP, and a head tied to the
/// embedding table.
std::string gptModel(int layers);
/// An encoder-decoder model. Every decoder layer reads the encoder's output,
/// the decoder's embedding is computed first, and both share one table.
std::string encoderDecoderModel(int layers);
/// A random graph of `size` operations: skip connections over any distance,
/// parameters read several times, integers, values computed from inputs or
/// parameters alone, and several outputs.
std::string randomModel(uint64_t seed, int size);

} // namespace cleave::test

#endif
