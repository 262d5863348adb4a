// A test fixture that runs the training loop in the test's folder.
#ifndef CLEAVE_TEST_UNIT_TRAINER_TRAININGFIXTURE_H
#define CLEAVE_TEST_UNIT_TRAINER_TRAININGFIXTURE_H

#include "BigramExecutor.h"
#include "TestFolder.h"
#include "cleave/trainer/Checkpoint.h"
#include "cleave/trainer/Train.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

namespace cleave::test {

struct Training : ::testing::Test {
  TestFolder folder;
  BigramOptions model;
  TrainOptions options;
  std::function<void(BigramExecutor &, const std::string &, int64_t)> before;
  std::vector<int64_t> samples;

  Training() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += static_cast<char>((i * i + i / 3) % 11);
    folder.write("x.txt", text);
    options.data = folder.path("x.txt");
    options.progressBar = false;
  }

  struct Watched : BigramExecutor {
    std::vector<int64_t> *samples;
    Watched(const BigramOptions &o, std::vector<int64_t> *samples)
        : BigramExecutor(o), samples(samples) {}
    ~Watched() override { *samples = seenSamples; }
  };

  void runManifest(const Manifest &manifest, const std::string &out) {
    options.out = out.empty() ? "" : folder.path(out);
    ::testing::internal::CaptureStdout();
    try {
      train(manifest, options, [&] {
        auto executor = std::make_unique<Watched>(model, &samples);
        executor->before = before;
        return executor;
      });
    } catch (...) {
      printed = ::testing::internal::GetCapturedStdout();
      throw;
    }
    printed = ::testing::internal::GetCapturedStdout();
  }
  void run(const std::string &out) { runManifest(bigramManifest(model), out); }

  std::vector<nlohmann::json> log(const std::string &out) {
    std::vector<nlohmann::json> lines;
    std::istringstream text(folder.read(out + "/log.jsonl"));
    for (std::string line; std::getline(text, line);)
      if (auto json = nlohmann::json::parse(line); !json.contains("event"))
        lines.push_back(json);
    return lines;
  }
  std::vector<double> losses(const std::string &out) {
    std::vector<double> result;
    for (auto &line : log(out))
      result.push_back(line["loss"].is_null() ? NAN
                                              : line["loss"].get<double>());
    return result;
  }
  std::vector<std::string> checkpoints(const std::string &out) {
    std::vector<std::string> found;
    for (const std::string &name : folder.list(out))
      if (name.starts_with("checkpoint-"))
        found.push_back(name);
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string checkpoint(const std::string &out, const char *file) {
    return folder.read(out + "/" + checkpointName(model.steps) + "/" + file);
  }

  std::string printed;
};

} // namespace cleave::test

#endif // CLEAVE_TEST_UNIT_TRAINER_TRAININGFIXTURE_H
