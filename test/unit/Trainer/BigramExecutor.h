// A minimal model that replaces a compiled program in tests: a table [V, V] of
// next-token logits, trained with momentum SGD. Its ranks shard the batch with
// padding, as in data parallelism.
#ifndef CLEAVE_TEST_UNIT_TRAINER_BIGRAMEXECUTOR_H
#define CLEAVE_TEST_UNIT_TRAINER_BIGRAMEXECUTOR_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <functional>
#include <map>
#include <span>

namespace cleave::test {

struct BigramOptions {
  int64_t vocabulary = 11, batch = 6, sequence = 4, microbatches = 1, ranks = 1;
  int64_t steps = 8;
  bool pipelined = false;
};

/// The manifest of the bigram program. The table is initialized by the
/// manifest's `init` rule.
Manifest bigramManifest(const BigramOptions &options);

class BigramExecutor : public StepExecutor {
public:
  explicit BigramExecutor(const BigramOptions &options);

  int64_t ranks() const override { return options.ranks; }
  bool hasAction(const std::string &action) const override;
  const std::vector<BufferInfo> &buffers() const override { return table; }
  void scatter(const std::string &buffer, const ArrayView &array,
               const void *padding) override;
  Array gather(const std::string &buffer, const std::string &dtype) override;
  void zero(const std::string &buffer) override;
  void setScalar(const std::string &buffer, double value) override;
  void setInteger(const std::string &buffer, int64_t value) override;
  void run(const std::string &action) override;
  std::vector<RankTraffic> traffic(int64_t rank) override;
  RankMemory memory(int64_t rank) override;
  void resetCounters() override { sent = 0; }
  void startTrace() override { traces = true; }
  void stopTrace() override { traces = false; }
  std::vector<RankEvent> takeTrace(int64_t rank) override;

  /// Called before every action, with the step number.
  std::function<void(BigramExecutor &, const std::string &, int64_t)> before;
  double *values(const std::string &buffer);
  std::span<std::byte> tile(const std::string &buffer, int64_t rank);
  std::vector<int64_t> seenSamples; ///< sample_ids of training, in order

private:
  bool traces = false;
  int64_t clock = 1000;
  std::vector<RankEvent> events; // the same for all ranks
  void forward(bool gradients);
  void load(const std::string &microbatch);
  void replay();

  BigramOptions options;
  std::vector<BufferInfo> table;
  std::map<std::string, std::vector<Array>> storage; // one, or one per rank
  std::vector<std::map<std::string, std::vector<Array>>> loaded; // microbatches
  int64_t rowsPerRank, sent = 0;
};

} // namespace cleave::test

#endif // CLEAVE_TEST_UNIT_TRAINER_BIGRAMEXECUTOR_H
