// Reference semantics of dropout and the optimizers.

#include "Model.h"

#include <array>
#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

std::array<uint32_t, 4>
cleave::evaluate::philox(uint64_t seed, std::array<uint32_t, 4> counter) {
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xD2511F53u) * counter[0];
    uint64_t b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

static void dropout(nn::DropoutOp op, Operands in, Results out) {
  // input, seed, step, sample ids, offsets...
  double p = op.getP().convertToDouble();
  ArrayRef<int64_t> global = op.getGlobalShape();
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    int64_t element = 0;
    for (size_t dim = 1; dim < index.size(); ++dim) {
      int64_t offset = in.size() > 4 ? in[3 + dim]->ints[0] : 0;
      element = element * global[dim] + offset + index[dim];
    }
    uint32_t word = philox(
        in[1]->ints[0], {uint32_t(element), uint32_t(in[3]->ints[index[0]]),
                         uint32_t(in[2]->ints[0]), uint32_t(op.getOpId())})[0];
    bool kept = word / 4294967296.0 >= p;
    out[0].floats[flat] = kept ? in[0]->floats[flat] / (1 - p) : 0;
  });
}

static void adamw(nn::AdamWOp op, Operands in, Results out) {
  // parameter, m, v, gradient, scale, lr, step
  double b1 = op.getBeta1().convertToDouble(),
         b2 = op.getBeta2().convertToDouble(),
         epsilon = op.getEpsilon().convertToDouble(),
         decay = op.getWeightDecay().convertToDouble();
  double scale = in[4]->floats[0], lr = in[5]->floats[0];
  double t = in[6]->ints[0];
  double correction1 = 1 - std::pow(b1, t), correction2 = 1 - std::pow(b2, t);
  for (int64_t i = 0; i < out[0].size(); ++i) {
    double g = in[3]->floats[i] * scale;
    double p = in[0]->floats[i] * (1 - lr * decay);
    double m = out[1].floats[i] = b1 * in[1]->floats[i] + (1 - b1) * g;
    double v = out[2].floats[i] = b2 * in[2]->floats[i] + (1 - b2) * g * g;
    out[0].floats[i] =
        p - lr / correction1 * m /
                (std::sqrt(v) / std::sqrt(correction2) + epsilon);
  }
}

static void sgd(nn::SgdOp op, Operands in, Results out) {
  // parameter, velocity, gradient, scale, lr
  double momentum = op.getMomentum().convertToDouble(),
         decay = op.getWeightDecay().convertToDouble();
  double scale = in[3]->floats[0], lr = in[4]->floats[0];
  for (int64_t i = 0; i < out[0].size(); ++i) {
    double g = in[2]->floats[i] * scale + decay * in[0]->floats[i];
    double velocity = out[1].floats[i] = momentum * in[1]->floats[i] + g;
    out[0].floats[i] = in[0]->floats[i] - lr * velocity;
  }
}

void cleave::evaluate::attachTraining(MLIRContext *c) {
  attach<nn::DropoutOp, dropout>(c);
  attach<nn::AdamWOp, adamw>(c);
  attach<nn::SgdOp, sgd>(c);
}
