// Models, as text, that the tests cut into stages. Each has @forward and @loss
// in f64.

#ifndef CLEAVE_TEST_UNIT_STAGE_MODELS_H
#define CLEAVE_TEST_UNIT_STAGE_MODELS_H

#include <cstdint>
#include <string>

namespace cleave::test {

/// An embedding, `layers` layers of attention and MLP, and a head tied to the
/// embedding table.
std::string gptModel(int layers);
/// An encoder-decoder model. Every decoder layer reads the encoder's output,
/// the decoder's embedding is computed first, and encoder and decoder share one
/// embedding table.
std::string encoderDecoderModel(int layers);
/// A random graph of `size` operations: skip connections over any distance,
/// parameters that are read several times, integers, values computed only from
/// inputs or only from parameters, and several outputs.
std::string randomModel(uint64_t seed, int size);

} // namespace cleave::test

#endif
