// The training loop reads the configuration that the compiler writes, and the
// configuration in a run's folder reads back to the same.
#include "cleave/Config/Load.h"
#include "cleave/trainer/Settings.h"

#include <gtest/gtest.h>

using namespace cleave;

namespace {

ConfigResult<LoadedConfig> load(const std::string &text) {
  return loadConfigText(text, "test.toml");
}

TEST(RunConfig, TheLoopReadsWhatTheCompilerWrites) {
  auto loaded = load("[data]\nseed = 3\nvalidation = 0.25\ndtype = \"uint8\"\n"
                     "ignore_index = -1\npath = \"a.txt\"\n"
                     "[train]\nlr = 1\nmin_lr = 0.5\nschedule = \"linear\"\n"
                     "warmup_steps = 4\nsteps = 9\nseed = 5\n");
  ASSERT_TRUE(loaded) << loaded.error();
  Manifest manifest;
  manifest.configJson = writeConfigJson(loaded->config);
  Settings s = settingsOf(manifest);
  EXPECT_EQ(s.dataPath, "a.txt");
  EXPECT_EQ(s.dataSeed, 3u);
  EXPECT_EQ(s.validation, 0.25);
  EXPECT_EQ(s.dataDtype, "uint8");
  EXPECT_EQ(s.ignoreIndex, -1);
  EXPECT_EQ(s.lr, 1);
  EXPECT_EQ(s.minLr, 0.5);
  EXPECT_EQ(s.schedule, "linear");
  EXPECT_EQ(s.warmupSteps, 4);
  EXPECT_EQ(s.steps, 9);
  EXPECT_EQ(s.seed, 5u);
}

TEST(RunConfig, DefaultsAreTheConfigurations) {
  auto loaded = load("");
  ASSERT_TRUE(loaded) << loaded.error();
  Manifest with, without;
  with.configJson = writeConfigJson(loaded->config);
  Settings a = settingsOf(with), b = settingsOf(without);
  EXPECT_EQ(a.dataDtype, b.dataDtype);
  EXPECT_EQ(a.ignoreIndex, b.ignoreIndex);
  EXPECT_EQ(a.dataSeed, b.dataSeed);
  EXPECT_EQ(a.validation, b.validation);
  EXPECT_EQ(a.lr, b.lr);
  EXPECT_EQ(a.minLr, b.minLr);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.warmupSteps, b.warmupSteps);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.skipNonFinite, b.skipNonFinite);
  EXPECT_EQ(a.shuffleSplit, b.shuffleSplit);
  EXPECT_EQ(a.evalPath, b.evalPath);
  EXPECT_EQ(a.saveMinutes, b.saveMinutes);
  EXPECT_EQ(a.keep, b.keep);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.seed, b.seed);
}

TEST(RunConfig, TheRunFolderKeepsTheConfiguration) {
  auto loaded = load("[mesh]\ndata = 2\ntensor = 2\n"
                     "[data]\ninputs = { mask = \"ones\" }\n"
                     "[train]\neps = 1e-7\nno_decay = [\".*\\\\.bias\"]\n"
                     "tie = [[\"a\", \"b\"]]\n"
                     "[parallel]\ndata = { zero = 1 }\n");
  ASSERT_TRUE(loaded) << loaded.error();
  Manifest manifest;
  manifest.configJson = writeConfigJson(loaded->config);
  Settings settings = settingsOf(manifest);
  settings.dataPath = "x \"y\"\\z.txt";
  settings.steps = 7;
  auto back = load(configToml(configJson(manifest, settings)));
  ASSERT_TRUE(back) << back.error() << "\n"
                    << configToml(configJson(manifest, settings));
  loaded->config.data.path = settings.dataPath;
  loaded->config.train.steps = 7;
  EXPECT_EQ(writeConfig(back->config), writeConfig(loaded->config));
}

} // namespace
