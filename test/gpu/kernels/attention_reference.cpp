// Computes attention as program.h defines it, one pair of query and key at a
// time.

#include "attention.h"

#include "cleave/philox.h"

#include <algorithm>
#include <thread>

using namespace cleave;
using namespace cleave::gpu;
using program::Attention;
using program::AttentionRef;
using program::IndexRef;

namespace {
int64_t at(const AttentionRef &ref, int64_t b, int64_t i, int64_t n, int64_t g,
           int64_t f) {
  return b * ref.strides[0] + i * ref.strides[1] + n * ref.strides[2] +
         g * ref.strides[3] + f * ref.strides[4];
}

// The queries that share a KV head of a sample, and the keys and values of that
// head.
class Heads {
public:
  Heads(const AttentionArrays &in, AttentionResults &out, int64_t b, int64_t n)
      : in(in), out(out), x(in.x), b(b), n(n),
        keys(rows(in.k, x.k, x.kLen, x.d, 0)),
        values(rows(in.v, x.v, x.kLen, x.dv, 0)), weights(x.kLen),
        slopes(x.kLen) {}

  void compute() {
    for (int64_t g = 0; g < x.g; ++g) {
      std::vector<double> queries = rows(in.q, x.q, x.qLen, x.d, g);
      for (int64_t i = 0; i < x.qLen; ++i) {
        const double *q = &queries[i * x.d];
        findScores(i, g, q);
        if (x.backward)
          addGradients(i, g, q);
        else
          addResults(i, g);
      }
    }
  }

private:
  std::vector<double> rows(const Array &array, const AttentionRef &ref,
                           int64_t length, int64_t width, int64_t g) const {
    std::vector<double> all;
    AttentionRef from = ref;
    if (&ref == &x.k || &ref == &x.v)
      from.strides[3] = 0;
    for (int64_t i = 0; i < length; ++i)
      for (int64_t f = 0; f < width; ++f)
        all.push_back(array.at(at(from, b, i, n, g, f)));
    return all;
  }

  static int64_t entry(const Array &array, const IndexRef &ref, int64_t b,
                       int64_t i) {
    return int64_t(array.at(b * ref.strides[0] + i * ref.strides[1]));
  }

  bool sees(int64_t i, int64_t j) const {
    int64_t query = x.queryPositions.buffer.present()
                        ? entry(in.queryPositions, x.queryPositions, b, i)
                        : x.queryOffset + i;
    int64_t key = x.keyPositions.buffer.present()
                      ? entry(in.keyPositions, x.keyPositions, b, j)
                      : x.keyOffset + j;
    if (x.causal && key > query)
      return false;
    if (x.window > 0 && std::abs(query - key) >= x.window)
      return false;
    if (x.querySegments.buffer.present() &&
        entry(in.querySegments, x.querySegments, b, i) !=
            entry(in.keySegments, x.keySegments, b, j))
      return false;
    return !x.keyMask.buffer.present() || entry(in.keyMask, x.keyMask, b, j);
  }

  // Returns the factor by which dropout multiplies a weight.
  double kept(int64_t i, int64_t g, int64_t j) const {
    if (x.dropout == 0)
      return 1;
    auto key = uint64_t(in.dropoutKeys.at(at(x.dropoutKeys, b, 0, n, g, 0)));
    auto query = uint32_t(entry(in.queryIndices, x.queryIndices, b, i));
    int64_t index = entry(in.keyIndices, x.keyIndices, b, j);
    uint32_t word = philox::blockOf(key, {{uint32_t(index / 4), query, 0, 0}})
                        .words[index % 4];
    return word / 4294967296.0 >= x.dropout ? 1 / (1 - x.dropout) : 0;
  }

  // Computes the scores of all keys for a query as weights[j]; the score of a
  // hidden key is -infinity. `spread` becomes 1 plus the largest sum of the
  // magnitudes of a score's terms. Rounding errors of a score grow with this
  // sum, and are relative errors of the softmax weight.
  void findScores(int64_t i, int64_t g, const double *q) {
    spread = 1;
    for (int64_t j = 0; j < x.kLen; ++j) {
      weights[j] = -INFINITY;
      if (!sees(i, j))
        continue;
      double sum = 0, magnitude = 0;
      for (int64_t f = 0; f < x.d; ++f) {
        double product = x.scale * q[f] * keys[j * x.d + f];
        sum += product, magnitude += std::abs(product);
      }
      slopes[j] = 1;
      if (x.softcap > 0) {
        double bent = std::tanh(sum / x.softcap);
        sum = x.softcap * bent, slopes[j] = 1 - bent * bent;
      }
      if (x.bias.buffer.present()) {
        double bias = in.bias.at(at(x.bias, b, i, n, g, j));
        sum += bias, magnitude += std::abs(bias);
      }
      weights[j] = sum;
      spread = std::max(spread, 1 + magnitude);
    }
  }

  void addResults(int64_t i, int64_t g) {
    double most = -INFINITY, sum = 0;
    for (double score : weights)
      most = std::max(most, score);
    for (double score : weights)
      sum += score == -INFINITY ? 0 : std::exp(score - most);
    Expected &lse = out.lse[at(x.lse, b, i, n, g, 0)];
    lse.isWritten = true;
    lse.value = sum > 0 ? most + std::log(sum) : -INFINITY;
    lse.terms = spread;
    for (int64_t f = 0; f < x.dv; ++f)
      out.o[at(x.o, b, i, n, g, f)].isWritten = true;
    for (int64_t j = 0; j < x.kLen; ++j)
      for (int64_t f = 0; weights[j] != -INFINITY && f < x.dv; ++f) {
        double part = std::exp(weights[j] - lse.value) * kept(i, g, j) *
                      values[j * x.dv + f];
        out.o[at(x.o, b, i, n, g, f)].add(part, std::abs(part) * spread);
      }
  }

  void addGradients(int64_t i, int64_t g, const double *q) {
    double lse = in.lse.at(at(x.lse, b, i, n, g, 0));
    double delta = 0, deltaMagnitude = 0;
    std::vector<double> dO(x.dv);
    for (int64_t f = 0; f < x.dv; ++f) {
      dO[f] = in.dO.at(at(x.dO, b, i, n, g, f));
      double part = dO[f] * in.o.at(at(x.o, b, i, n, g, f));
      delta += part, deltaMagnitude += std::abs(part);
    }
    for (int64_t f = 0; f < x.d; ++f)
      out.dq[at(x.dq, b, i, n, g, f)].isWritten = true;
    for (int64_t j = 0; j < x.kLen; ++j) {
      if (weights[j] == -INFINITY)
        continue;
      double weight = std::exp(weights[j] - lse);
      double sum = 0, magnitude = deltaMagnitude;
      double factor = kept(i, g, j);
      for (int64_t f = 0; f < x.dv; ++f) {
        double product = factor * dO[f] * values[j * x.dv + f];
        sum += product, magnitude += std::abs(product);
        double part = weight * factor * dO[f];
        out.dV[at(x.dV, b, j, n, 0, f)].add(part, std::abs(part) * spread);
      }
      double ds = x.scale * slopes[j] * weight * (sum - delta);
      // The soft cap's slope 1 - tanh^2 is near 0 where tanh is near 1, but its
      // rounding error is not. So the allowed error is computed from the
      // magnitude without the factor of the slope.
      double dsMagnitude = x.scale * weight * magnitude * spread;
      for (int64_t f = 0; f < x.d; ++f) {
        double key = keys[j * x.d + f];
        out.dq[at(x.dq, b, i, n, g, f)].add(ds * key,
                                            dsMagnitude * std::abs(key));
        out.dk[at(x.dk, b, j, n, 0, f)].add(ds * q[f],
                                            dsMagnitude * std::abs(q[f]));
      }
    }
  }

  const AttentionArrays &in;
  AttentionResults &out;
  const Attention &x;
  const int64_t b, n;
  const std::vector<double> keys, values; // those hidden may be NaN
  std::vector<double> weights, slopes;
  double spread = 1;
};
} // namespace

AttentionResults gpu::referenceAttention(const AttentionArrays &in) {
  const Attention &x = in.x;
  AttentionResults out;
  out.o.resize(in.o.size()), out.lse.resize(in.lse.size());
  out.dq.resize(in.dq.size());
  out.dk.resize(in.dk.size()), out.dV.resize(in.dV.size());
  if (x.backward) // also where no query sees a key
    for (int64_t b = 0; b < x.b; ++b)
      for (int64_t j = 0; j < x.kLen; ++j)
        for (int64_t n = 0; n < x.n; ++n) {
          for (int64_t f = 0; f < x.d; ++f)
            out.dk[at(x.dk, b, j, n, 0, f)].isWritten = true;
          for (int64_t f = 0; f < x.dv; ++f)
            out.dV[at(x.dV, b, j, n, 0, f)].isWritten = true;
        }
  std::vector<std::thread> threads;
  for (int64_t b = 0; b < x.b; ++b)
    for (int64_t n = 0; n < x.n; ++n)
      threads.emplace_back([&, b, n] { Heads(in, out, b, n).compute(); });
  for (std::thread &thread : threads)
    thread.join();
  return out;
}
