// Training data: the order of samples, how text and arrays are cut into
// samples, and data that is rejected.
#include "cleave/trainer/Data.h"
#include "BigramExecutor.h"
#include "TestFolder.h"
#include "cleave/io/Error.h"
#include "cleave/io/Npy.h"
#include "cleave/trainer/Feeder.h"
#include "cleave/trainer/Settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

using namespace cleave;
using namespace cleave::test;

namespace {

TEST(Sampling, EachEpochIsAPermutation) {
  for (int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000}) {
    std::vector<int64_t> first;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < size; ++i) {
        order.push_back(trainingSample(epoch * size + i, size, 5));
        seen.insert(order.back());
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), size - 1);
      if (epoch == 0)
        first = order;
      else if (size >= 16)
        EXPECT_NE(order, first) << "epochs repeat their order";
    }
    if (size >= 16) {
      std::vector<int64_t> other;
      for (int64_t i = 0; i < size; ++i)
        other.push_back(trainingSample(i, size, 6));
      EXPECT_NE(other, first) << "the seed does not matter";
    }
  }
}

// The order of samples is part of the format: a change here changes every
// training run.
TEST(Sampling, OrderIsFixed) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i)
    order.push_back(trainingSample(i, 10, 0));
  EXPECT_EQ(order, (std::vector<int64_t>{9, 1, 3, 4, 8, 0, 2, 5, 6, 7}));
}

struct Text : ::testing::Test {
  TestFolder folder;
  BigramOptions options;
  Manifest manifest = bigramManifest(options);
  Settings settings = settingsOf(manifest);

  /// Returns the text of `count` tokens 0, 1, 2, ... modulo `modulus`.
  std::string cycle(int64_t count, int modulus = 11) {
    std::string text;
    for (int64_t i = 0; i < count; ++i)
      text += static_cast<char>(i % modulus);
    return text;
  }
  std::unique_ptr<Dataset> open(const std::string &name) {
    settings.dataPath = folder.path(name);
    return openDataset(manifest, settings);
  }
  std::vector<int64_t> row(const Dataset &data, InputRole role, Split split,
                           int64_t sample) {
    std::vector<int64_t> values(4);
    data.fill(*manifest.inputWithRole(role), split, sample,
              reinterpret_cast<std::byte *>(values.data()));
    return values;
  }
  std::string refusal(const std::string &name) {
    return messageOf<InputError>([&] { open(name); });
  }
};

using Row = std::vector<int64_t>;

TEST_F(Text, IsCutIntoSequencesAndTheirNextTokens) {
  folder.write("x.txt", cycle(40));
  auto data = open("x.txt"); // a quarter is held out: 30 and 10 tokens
  EXPECT_EQ(data->samples(Split::training), 7);
  EXPECT_EQ(data->samples(Split::validation), 2);
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::training, 0),
            (Row{0, 1, 2, 3}));
  EXPECT_EQ(row(*data, InputRole::Labels, Split::training, 0),
            (Row{1, 2, 3, 4}));
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::training, 6),
            (Row{2, 3, 4, 5}));
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::validation, 0),
            (Row{8, 9, 10, 0}));
  EXPECT_EQ(row(*data, InputRole::Labels, Split::validation, 1),
            (Row{2, 3, 4, 5}));
}

// If labels are the next tokens, a sample has one label for each token. An
// input that has a single label per sample is refused.
TEST_F(Text, NextTokensNeedALabelForEachToken) {
  folder.write("x.txt", cycle(40));
  for (ManifestInput &input : manifest.inputs)
    if (input.role == InputRole::Labels)
      input.shape.pop_back();
  EXPECT_NE(refusal("x.txt").find(
                "labels that are the next tokens need one for each token"),
            std::string::npos);
}

TEST_F(Text, OtherFormsGiveTheSameSamples) {
  Array tokens = makeArray("i32", {40});
  std::string bin;
  for (int64_t i = 0; i < 40; ++i) {
    tokens.as<int32_t>()[i] = static_cast<int32_t>(i % 11);
    bin += static_cast<char>(i % 11);
    bin += '\0';
  }
  folder.write("x.txt", cycle(40));
  folder.write("x.bin", bin);
  writeNpy(folder.path("x.npy"), tokens);
  writeNpz(folder.path("x.npz"), {{"input_ids", tokens}});
  std::filesystem::create_directory(folder.path("x"));
  writeNpy(folder.path("x/input_ids.npy"), tokens);
  auto text = open("x.txt");
  for (const char *name : {"x.bin", "x.npy", "x.npz", "x"}) {
    auto data = open(name);
    ASSERT_EQ(data->samples(Split::training), 7) << name;
    for (int64_t i = 0; i < 7; ++i)
      for (InputRole role : {InputRole::Tokens, InputRole::Labels})
        EXPECT_EQ(row(*data, role, Split::training, i),
                  row(*text, role, Split::training, i))
            << name;
  }
}

TEST_F(Text, HoldsOutASequenceAtLeast) {
  folder.write("x.txt", cycle(10));
  auto data = open("x.txt"); // a quarter would be 2 tokens
  EXPECT_EQ(data->samples(Split::training), 1);
  EXPECT_EQ(data->samples(Split::validation), 1);
  settings.validation = 0;
  EXPECT_EQ(open("x.txt")->samples(Split::training), 2);
  EXPECT_EQ(open("x.txt")->samples(Split::validation), 0);
}

TEST_F(Text, TooShort) {
  folder.write("x.txt", cycle(4));
  EXPECT_EQ(refusal("x.txt"),
            folder.path("x.txt") +
                ": 4 tokens are fewer than a sequence of 4 and its next token; "
                "give more text or a smaller dims.sequence");
  folder.write("x.txt", "");
  EXPECT_NE(refusal("x.txt").find(": 0 tokens are fewer"), std::string::npos);
  folder.write("x.txt", cycle(9));
  EXPECT_NE(refusal("x.txt").find("data.validation = 0"), std::string::npos);
}

TEST_F(Text, TokenBeyondTheVocabulary) {
  std::string text = cycle(40);
  text[23] = 11;
  folder.write("x.txt", text);
  EXPECT_EQ(refusal("x.txt"),
            folder.path("x.txt") +
                ": the token at position 23 has id 11, beyond the model's "
                "vocabulary of 11 (input 'input_ids')");
  Array tokens = makeArray("i32", {40});
  tokens.as<int32_t>()[39] = -1;
  writeNpy(folder.path("x.npy"), tokens);
  EXPECT_NE(refusal("x.npy").find("position 39 has id -1"), std::string::npos);
}

TEST_F(Text, OtherMistakes) {
  EXPECT_NE(refusal("none.txt").find("No such file"), std::string::npos);
  folder.write("x.csv", "1");
  EXPECT_NE(refusal("x.csv").find("unknown kind of data '.csv'"),
            std::string::npos);
  folder.write("x.bin", "123");
  EXPECT_NE(refusal("x.bin").find("no whole number of uint16 tokens"),
            std::string::npos);
  settings.dataDtype = "float32";
  EXPECT_NE(refusal("x.bin").find("found 'float32'"), std::string::npos);
  writeNpy(folder.path("f.npy"), makeArray("f32", {40}));
  EXPECT_NE(refusal("f.npy").find("expected integer tokens"),
            std::string::npos);
  std::filesystem::create_directory(folder.path("empty"));
  EXPECT_NE(refusal("empty").find("holds no .npy files"), std::string::npos);
  settings.dataPath.clear();
  EXPECT_NE(messageOf<InputError>([&] {
              openDataset(manifest, settings);
            }).find("give --data FILE"),
            std::string::npos);
}

// Every row is in exactly one of the two parts (training or held out); the seed
// determines in which.
TEST_F(Text, SamplesAreHeldOutBySeed) {
  Array tokens = makeArray("i64", {40, 5});
  for (int64_t i = 0; i < 200; ++i)
    tokens.as<int64_t>()[i] = i / 5 % 11; // the row, if below 11
  writeNpz(folder.path("x.npz"), {{"input_ids", tokens}});
  std::string text;
  for (int i = 0; i < 121; ++i)
    text += static_cast<char>(i % 11);
  folder.write("t.txt", text);
  auto parts = [&](const std::string &path) {
    auto data = open(path.c_str());
    std::array<std::multiset<Row>, 2> found;
    for (Split split : {Split::training, Split::validation})
      for (int64_t i = 0; i < data->samples(split); ++i)
        found[split == Split::validation].insert(
            row(*data, InputRole::Tokens, split, i));
    return found;
  };
  auto all = [](std::array<std::multiset<Row>, 2> found) {
    found[0].merge(found[1]);
    return found[0];
  };
  settings.shuffleSplit = "false";
  auto last = parts("x.npz"), end = parts("t.txt");
  settings.shuffleSplit = "auto";
  auto drawn = parts("x.npz");
  EXPECT_EQ(drawn[1].size(), last[1].size());
  EXPECT_NE(drawn[1], last[1]);
  EXPECT_EQ(all(drawn), all(last));
  EXPECT_EQ(parts("x.npz"), drawn);
  EXPECT_EQ(parts("t.txt"), end);
  settings.dataSeed = 5;
  EXPECT_NE(parts("x.npz")[1], drawn[1]);
  settings.shuffleSplit = "true";
  auto shuffled = parts("t.txt");
  EXPECT_NE(shuffled[1], end[1]);
  settings.validation = 0;
  EXPECT_EQ(all(shuffled), parts("t.txt")[0]); // no sequence is lost
}

TEST_F(Text, ValidationHasDataOfItsOwn) {
  folder.write("x.txt", std::string(41, '\1'));
  folder.write("y.txt", std::string(13, '\2'));
  settings.evalPath = folder.path("y.txt");
  auto data = open("x.txt");
  EXPECT_EQ(data->samples(Split::training), 10);
  EXPECT_EQ(data->samples(Split::validation), 3);
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::validation, 2),
            (Row{2, 2, 2, 2}));
  settings.evalPath = folder.path("missing.txt");
  EXPECT_NE(refusal("x.txt").find("missing.txt"), std::string::npos);
}

TEST_F(Text, NamedArraysGiveASamplePerRow) {
  Array tokens = makeArray("i64", {8, 5});
  for (int64_t i = 0; i < 40; ++i)
    tokens.as<int64_t>()[i] = i % 11;
  writeNpz(folder.path("x.npz"), {{"input_ids", tokens}});
  settings.shuffleSplit = "false";
  auto data = open("x.npz");
  EXPECT_EQ(data->samples(Split::training), 6);
  EXPECT_EQ(data->samples(Split::validation), 2);
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::training, 1),
            (Row{5, 6, 7, 8}));
  EXPECT_EQ(row(*data, InputRole::Labels, Split::training, 1),
            (Row{6, 7, 8, 9}));
  EXPECT_EQ(row(*data, InputRole::Tokens, Split::validation, 0),
            (Row{8, 9, 10, 0}));

  Array exact = makeArray("i64", {4, 4}), labels = makeArray("i32", {4, 4});
  labels.as<int32_t>()[3] = -100;
  writeNpz(folder.path("y.npz"), {{"input_ids", exact}, {"targets", labels}});
  EXPECT_EQ(row(*open("y.npz"), InputRole::Labels, Split::training, 0),
            (Row{0, 0, 0, -100}));
  for (ManifestInput &input : manifest.inputs)
    if (input.role == InputRole::Labels)
      input.source = "targets";
  EXPECT_EQ(row(*open("y.npz"), InputRole::Labels, Split::training, 0),
            (Row{0, 0, 0, -100}));
  EXPECT_NE(
      refusal("x.npz").find("lacks the arrays 'targets' (for input 'labels')"),
      std::string::npos);
  writeNpz(folder.path("z.npz"),
           {{"input_ids", exact}, {"targets", makeArray("i64", {4, 3})}});
  EXPECT_NE(refusal("z.npz").find("has shape [4, 3], expected [4, 4]"),
            std::string::npos);
}

// A rank's rows past the end of the batch are padding and must not count.
TEST(Feeder, PaddingIsIgnored) {
  BigramOptions options;
  options.batch = 5;
  options.ranks = 3;
  Manifest manifest = bigramManifest(options);
  BigramExecutor executor(options);
  Feeder feeder(manifest, executor, -7);
  TestFolder folder;
  folder.write("x.txt", std::string(100, '\1'));
  Settings settings = settingsOf(manifest);
  settings.dataPath = folder.path("x.txt");
  auto data = openDataset(manifest, settings);
  std::vector<FeedRow> rows = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  feeder.feed(*data, Split::training, rows,
              rows); // the fifth has no sample
  std::vector<int64_t> labels;
  for (int64_t rank = 0; rank < 3; ++rank)
    for (int64_t i = 0; i < 8; ++i)
      labels.push_back(
          integerAt("i64", executor.tile("labels", rank).data(), i));
  std::vector<int64_t> want(16, 1);
  want.resize(24, -7);
  EXPECT_EQ(labels, want);
}

TEST(LearningRate, WarmsUpAndFalls) {
  Settings s;
  s.lr = 1;
  s.minLr = 0.1;
  s.steps = 14;
  s.warmupSteps = 4;
  for (const char *schedule : {"constant", "linear", "cosine"}) {
    s.schedule = schedule;
    EXPECT_DOUBLE_EQ(learningRate(s, 1), 0.25);
    EXPECT_DOUBLE_EQ(learningRate(s, 4), 1);
    EXPECT_DOUBLE_EQ(learningRate(s, 5), 1);
  }
  EXPECT_DOUBLE_EQ(learningRate(s, 10), 0.55); // cosine's middle
  EXPECT_DOUBLE_EQ(learningRate(s, 15), 0.1);
  s.schedule = "linear";
  EXPECT_DOUBLE_EQ(learningRate(s, 10), 0.55);
  EXPECT_DOUBLE_EQ(learningRate(s, 14), 0.19);
  s.schedule = "constant";
  EXPECT_DOUBLE_EQ(learningRate(s, 14), 1);
}

TEST(ConfigToml, IsWhatRan) {
  Manifest m;
  m.configJson =
      R"({"mesh":{"axes":["data"],"data":2},"data":{"path":"a.txt",)"
      R"("inputs":{"mask":"ones"}},"train":{"lr":0.001,"eps":1.0,"steps":5,)"
      R"("no_decay":[]},"parallel":{"data":{"axis":"data","zero":1}},)"
      R"("shard":[{"match":".*\\.w","dims":[["t"],[]]}]})";
  Settings s = settingsOf(m);
  s.dataPath = "b \"c\".txt";
  s.steps = 7;
  EXPECT_EQ(configToml(configJson(m, s)), R"([mesh]
axes = ["data"]
data = 2

[data]
path = "b \"c\".txt"
inputs = { mask = "ones" }

[train]
lr = 0.001
eps = 1.0
steps = 7
no_decay = []

[parallel]
data = { axis = "data", zero = 1 }

[[shard]]
match = ".*\\.w"
dims = [["t"], []]
)");
}

TEST(Settings, WrongValuesNameTheKey) {
  Manifest m;
  m.configJson = R"({"train":{"lr":"fast"}})";
  EXPECT_EQ(messageOf<InputError>([&] { settingsOf(m); }),
            "configuration key 'train.lr': unexpected value \"fast\"");
  m.configJson = R"({"train":{"on_nan":"pray"}})";
  EXPECT_NE(messageOf<InputError>([&] { settingsOf(m); }).find("stop or skip"),
            std::string::npos);
}

} // namespace
