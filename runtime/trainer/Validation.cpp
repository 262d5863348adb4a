#include "Validation.h"
#include "Metric.h"

#include <algorithm>

namespace cleave {

Validation::Validation(const Manifest &manifest, const Settings &settings,
                       const TrainOptions &options, const Dataset &data,
                       StepExecutor &executor, Feeder &feeder)
    : manifest(manifest), settings(settings), options(options), data(data),
      executor(executor), feeder(feeder),
      every(options.evalEvery >= 0 ? options.evalEvery
                                   : std::max<int64_t>(1, settings.steps / 10)),
      isPossible(usableSamples() > 0 && executor.hasAction("loss") &&
                 readMetric(manifest, executor, "loss", "loss")) {}

bool Validation::isDue(int64_t step, bool isLast) const {
  return isPossible && (isLast || (every > 0 && step % every == 0));
}

/// Returns how many held-out samples can be validated. If labels can be
/// ignored, the last microbatch is filled up with samples whose labels are
/// ignored. Otherwise the loss counts every row of a microbatch, so only whole
/// microbatches give the right mean.
int64_t Validation::usableSamples() const {
  int64_t count = data.samples(Split::validation);
  if (settings.loss == "cross_entropy")
    return count;
  return count - count % samplesTogether();
}

/// The number of samples that share one loss: those of a microbatch, or those
/// of a step if the loss reads the whole step.
int64_t Validation::samplesTogether() const {
  return manifest.readsWholeSteps() ? manifest.batch
                                    : manifest.samplesPerMicrobatch();
}

/// How many samples one validation reads.
int64_t Validation::samplesToRead() const {
  // Validation reads the same samples every time, so that values are
  // comparable. By default they are few enough to cost only some percent of the
  // time.
  int64_t count = usableSamples();
  int64_t limit = options.evalSamples;
  if (limit < 0)
    limit = std::clamp<int64_t>(
        manifest.batch * std::max<int64_t>(every, settings.steps / 10) / 4,
        4 * manifest.batch, 1024);
  if (limit > 0)
    count = std::min(count, limit);
  const int64_t together = samplesTogether();
  if (settings.loss != "cross_entropy")
    count = std::max(together, count - count % together);
  return count;
}

void Validation::run(StepRecord &record) {
  const int64_t count = samplesToRead();
  const int64_t perMicrobatch = manifest.samplesPerMicrobatch();
  const int64_t together = samplesTogether();
  data.checkUnchanged();
  double loss = 0, weight = 0;
  for (int64_t begin = 0; begin < count; begin += perMicrobatch) {
    auto rowsFrom = [&](int64_t from, int64_t size) {
      std::vector<FeedRow> rows(size);
      for (int64_t i = 0; i < size && from + i < count; ++i)
        rows[i] = {from + i, from + i};
      return rows;
    };
    feeder.feed(data, Split::validation, rowsFrom(begin, perMicrobatch),
                rowsFrom(begin - begin % together, together));
    executor.run("loss");
    loss += readMetric(manifest, executor, "loss", "loss").value_or(0);
    weight += readMetric(manifest, executor, "loss", "weight").value_or(0);
  }
  record.valLoss = loss / weight;
  record.valSamples = count;
}

std::string Validation::samplesLeftOut() const {
  if (int64_t held = data.samples(Split::validation), used = usableSamples();
      used < held)
    return "val_loss is of " + std::to_string(used) + " of the " +
           std::to_string(held) + " held-out samples: with train.loss = \"" +
           settings.loss + "\" only whole " +
           (manifest.readsWholeSteps() ? "batches" : "microbatches") + " of " +
           std::to_string(samplesTogether()) + " can be validated";
  return "";
}

} // namespace cleave
