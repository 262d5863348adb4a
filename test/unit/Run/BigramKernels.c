// Kernels of the program that cleave-make-bigram writes: next-token logits from
// a table [V, V], trained with Adam. In double, one call per launch.
#include "cleave/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { V = 257, S = 16 };

// args: tokens, labels, table, gradient or itself, loss, weight
static void run(void *const *args, int64_t rows, int gradient) {
  const int64_t *tokens = args[0], *labels = args[1];
  const double *table = args[2];
  double *grad = args[3], *loss = args[4], *weight = args[5];
  for (int64_t i = 0; i < rows * S; ++i) {
    if (labels[i] < 0)
      continue;
    const double *row = table + tokens[i] * V;
    double sum = 0;
    for (int j = 0; j < V; ++j)
      sum += exp(row[j]);
    *loss += log(sum) - row[labels[i]];
    *weight += 1;
    if (gradient)
      for (int j = 0; j < V; ++j)
        grad[tokens[i] * V + j] += exp(row[j]) / sum - (j == labels[i]);
  }
}

void bigram_grad(const cleave_ctx *ctx, void *const *args, int64_t begin,
                 int64_t end) {
  run(args, end, 1);
}

void bigram_loss(const cleave_ctx *ctx, void *const *args, int64_t begin,
                 int64_t end) {
  run(args, end, 0);
}

// args: table, gradient, m, v, weight, lr, step, norm
void bigram_update(const cleave_ctx *ctx, void *const *args, int64_t begin,
                   int64_t end) {
  double *table = args[0], *g = args[1], *m = args[2], *v = args[3];
  double weight = *(double *)args[4], lr = *(double *)args[5], norm = 0;
  int64_t step = *(int64_t *)args[6];
  for (int i = 0; i < V * V; ++i) {
    double gradient = g[i] / weight;
    norm += gradient * gradient;
    m[i] = 0.9 * m[i] + 0.1 * gradient;
    v[i] = 0.99 * v[i] + 0.01 * gradient * gradient;
    table[i] -= lr * (m[i] / (1 - pow(0.9, step))) /
                (sqrt(v[i] / (1 - pow(0.99, step))) + 1e-8);
  }
  *(double *)args[7] = sqrt(norm);
}

// args: tokens, table, logits
void bigram_forward(const cleave_ctx *ctx, void *const *args, int64_t begin,
                    int64_t end) {
  const int64_t *tokens = args[0];
  const double *table = args[1];
  double *logits = args[2];
  for (int64_t i = begin * S; i < end * S; ++i)
    for (int j = 0; j < V; ++j)
      logits[i * V + j] = table[tokens[i] * V + j];
}
