// Reference semantics of operations on rows: norms, softmax, cross-entropy.

#include "Model.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

/// Calls `visit(row, first element of the row)` for each row of length `width`.
template <typename Visit>
static void forEachRow(const Tensor &tensor, Visit visit) {
  int64_t width = tensor.shape().back();
  for (int64_t row = 0; width && row < tensor.size() / width; ++row)
    visit(row, row * width);
}

static void softmax(nn::SoftmaxOp, Operands in, Results out) {
  int64_t width = in[0]->shape().back();
  forEachRow(*in[0], [&](int64_t, int64_t at) {
    const double *x = &in[0]->floats[at];
    double *y = &out[0].floats[at];
    double max = *std::max_element(x, x + width), sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += y[i] = std::exp(x[i] - max);
    for (int64_t i = 0; i < width; ++i)
      y[i] /= sum;
  });
}

static void layerNorm(nn::LayerNormOp op, Operands in, Results out) {
  int64_t width = in[0]->shape().back();
  double epsilon = op.getEpsilon().convertToDouble();
  forEachRow(*in[0], [&](int64_t row, int64_t at) {
    const double *x = &in[0]->floats[at];
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i)
      mean += x[i] / width;
    for (int64_t i = 0; i < width; ++i)
      variance += (x[i] - mean) * (x[i] - mean) / width;
    double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < width; ++i)
      out[0].floats[at + i] =
          (x[i] - mean) * rstd * in[1]->floats[i] + in[2]->floats[i];
    out[1].floats[row] = mean;
    out[2].floats[row] = rstd;
  });
}

static void layerNormGrad(nn::LayerNormGradOp, Operands in, Results out) {
  // cotangent, input, scale, mean, rstd
  int64_t width = in[1]->shape().back();
  forEachRow(*in[1], [&](int64_t row, int64_t at) {
    double mean = in[3]->floats[row], rstd = in[4]->floats[row];
    auto g = [&](int64_t i) {
      return in[0]->floats[at + i] * in[2]->floats[i];
    };
    auto n = [&](int64_t i) { return (in[1]->floats[at + i] - mean) * rstd; };
    double meanG = 0, meanGN = 0;
    for (int64_t i = 0; i < width; ++i) {
      meanG += g(i) / width;
      meanGN += g(i) * n(i) / width;
    }
    for (int64_t i = 0; i < width; ++i)
      out[0].floats[at + i] = rstd * (g(i) - meanG - n(i) * meanGN);
  });
}

static void rmsNorm(nn::RmsNormOp op, Operands in, Results out) {
  int64_t width = in[0]->shape().back();
  double epsilon = op.getEpsilon().convertToDouble();
  forEachRow(*in[0], [&](int64_t row, int64_t at) {
    const double *x = &in[0]->floats[at];
    double square = 0;
    for (int64_t i = 0; i < width; ++i)
      square += x[i] * x[i] / width;
    double rstd = 1 / std::sqrt(square + epsilon);
    for (int64_t i = 0; i < width; ++i)
      out[0].floats[at + i] = x[i] * rstd * in[1]->floats[i];
    out[1].floats[row] = rstd;
  });
}

static void rmsNormGrad(nn::RmsNormGradOp, Operands in, Results out) {
  // cotangent, input, scale, rstd
  int64_t width = in[1]->shape().back();
  forEachRow(*in[1], [&](int64_t row, int64_t at) {
    double rstd = in[3]->floats[row], meanGN = 0;
    auto g = [&](int64_t i) {
      return in[0]->floats[at + i] * in[2]->floats[i];
    };
    auto n = [&](int64_t i) { return in[1]->floats[at + i] * rstd; };
    for (int64_t i = 0; i < width; ++i)
      meanGN += g(i) * n(i) / width;
    for (int64_t i = 0; i < width; ++i)
      out[0].floats[at + i] = rstd * (g(i) - n(i) * meanGN);
  });
}

static void crossEntropy(nn::CrossEntropyOp op, Operands in, Results out) {
  int64_t classes = in[0]->shape().back();
  forEachRow(*in[0], [&](int64_t row, int64_t at) {
    const double *x = &in[0]->floats[at];
    double max = *std::max_element(x, x + classes), sum = 0;
    for (int64_t i = 0; i < classes; ++i)
      sum += std::exp(x[i] - max);
    double lse = max + std::log(sum);
    int64_t label = in[1]->ints[row];
    bool counted =
        label != int64_t(op.getIgnoreIndex()) && label >= 0 && label < classes;
    out[0].floats[row] = counted ? lse - x[label] : 0;
    out[1].floats[row] = lse;
  });
}

static void crossEntropyGrad(nn::CrossEntropyGradOp op, Operands in,
                             Results out) {
  // cotangent, logits, labels, lse
  int64_t classes = in[1]->shape().back();
  forEachRow(*in[1], [&](int64_t row, int64_t at) {
    int64_t label = in[2]->ints[row];
    bool counted =
        label != int64_t(op.getIgnoreIndex()) && label >= 0 && label < classes;
    for (int64_t i = 0; i < classes; ++i) {
      double p = std::exp(in[1]->floats[at + i] - in[3]->floats[row]);
      out[0].floats[at + i] =
          counted ? in[0]->floats[row] * (p - (i == label)) : 0;
    }
  });
}

void cleave::evaluate::attachRows(MLIRContext *c) {
  attach<nn::SoftmaxOp, softmax>(c);
  attach<nn::LayerNormOp, layerNorm>(c);
  attach<nn::LayerNormGradOp, layerNormGrad>(c);
  attach<nn::RmsNormOp, rmsNorm>(c);
  attach<nn::RmsNormGradOp, rmsNormGrad>(c);
  attach<nn::CrossEntropyOp, crossEntropy>(c);
  attach<nn::CrossEntropyGradOp, crossEntropyGrad>(c);
}
