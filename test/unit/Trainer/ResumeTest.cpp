// Checkpoints, runs that resume from them, and runs that start from other
// weights.
#include "TrainingFixture.h"

#include "cleave/io/Error.h"
#include "cleave/io/Safetensors.h"
#include "cleave/trainer/Resume.h"

#include <filesystem>
#include <limits>
#include <sys/stat.h>

using namespace cleave;
using namespace cleave::test;

namespace {

TEST_F(Training, ResumesBitIdentical) {
  options.saveEvery = 3;
  run("a");
  EXPECT_TRUE(std::filesystem::exists(folder.path("a/checkpoint-000006")));
  options.resume = folder.path("a/checkpoint-000003");
  run("b");
  std::vector<double> whole = losses("a"), rest = losses("b");
  ASSERT_EQ(rest.size(), 5u);
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 3, whole.end()));
  for (const char *file :
       {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(checkpoint("a", file), checkpoint("b", file)) << file;
  // Resumes the run on another mesh.
  model.ranks = 2;
  run("c");
  rest = losses("c");
  for (size_t i = 0; i < rest.size(); ++i)
    EXPECT_NEAR(rest[i], whole[i + 3], 1e-12);
}

TEST_F(Training, ResumeLatestGoesOnInItsFolder) {
  run("whole");
  // The run is aborted two steps after its checkpoint.
  options.saveEvery = 5;
  before = [](BigramExecutor &, const std::string &action, int64_t step) {
    if (step == 7 && action == "update")
      throw RunError("rank 1 failed");
  };
  EXPECT_EQ(messageOf<RunError>([&] { run("a"); }),
            "rank 1 failed; --resume " + folder.path("a/checkpoint-000005") +
                " goes on");
  EXPECT_EQ(log("a").size(), 6u);
  before = nullptr;
  options.resume = "latest";
  run("a");
  EXPECT_EQ(losses("a"), losses("whole"));
  EXPECT_EQ(checkpoint("a", "model.safetensors"),
            checkpoint("whole", "model.safetensors"));
  EXPECT_NE(messageOf<InputError>([&] {
              run("fresh");
            }).find("--resume latest: there is no whole checkpoint below"),
            std::string::npos);
}

TEST_F(Training, BadCheckpointsAreRefused) {
  run("a");
  std::string path = "a/checkpoint-000008";
  model.steps = 9;
  auto refused = [&](const std::string &resume) {
    options.resume = folder.path(resume);
    std::string message = messageOf<InputError>([&] { run("b"); });
    EXPECT_FALSE(std::filesystem::exists(folder.path("b")));
    return message;
  };
  EXPECT_NE(refused("nowhere").find("does not exist; give a checkpoint"),
            std::string::npos);
  // Damaged checkpoints: each file is truncated to half of its size.
  for (const char *file :
       {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    std::string whole = folder.read(path + "/" + file);
    folder.write(path + "/" + file, whole.substr(0, whole.size() / 2));
    EXPECT_NE(refused(path).find("torn"), std::string::npos) << file;
    std::filesystem::remove(folder.path(path + "/" + file));
    refused(path);
    folder.write(path + "/" + file, whole);
  }
  model.vocabulary = 13;
  EXPECT_NE(refused(path).find("is a checkpoint of another model"),
            std::string::npos);
  model.vocabulary = 11;
  EXPECT_NE(refused(path).find("has done 8 steps already"), std::string::npos);
  options.steps = 9;
  EXPECT_NE(refused(path).find("--steps 9 goes beyond train.steps = 8, where "
                               "train.schedule = \"linear\" has come to its "
                               "end; --accept train.steps"),
            std::string::npos);
  options.horizon = 9;
  run("b");
  EXPECT_EQ(log("b").size(), 1u);
}

TEST_F(Training, AStopForNaNSavesTheStateBeforeIt) {
  before = [](BigramExecutor &executor, const std::string &action,
              int64_t step) {
    if (step == 4 && action == "update")
      executor.values("g.table")[7] = std::numeric_limits<double>::quiet_NaN();
  };
  std::string message = messageOf<RunError>([&] { run("a"); });
  EXPECT_NE(
      message.find("step 4: the gradient norm is not finite; the first "
                   "non-finite tensor is gradient of 'p.table', element 7 "
                   "of [11, 11]"),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("--resume " + folder.path("a/checkpoint-000003") +
                         " goes on"),
            std::string::npos)
      << message;
  EXPECT_EQ(checkpoints("a"), std::vector<std::string>{"checkpoint-000003"});
  // The saved state equals the state of a run of three steps.
  before = nullptr;
  options.steps = 3;
  options.horizon = 8;
  run("three");
  EXPECT_EQ(folder.read("a/checkpoint-000003/model.safetensors"),
            folder.read("three/checkpoint-000003/model.safetensors"));
  options.steps.reset();
  run("whole");
  options.resume = folder.path("a/checkpoint-000003");
  run("a");
  EXPECT_EQ(losses("a"), losses("whole"));
}

TEST_F(Training, TheNewestCheckpointsAreKept) {
  options.saveEvery = 2;
  options.steps = 8;
  Manifest manifest = bigramManifest(model);
  auto runWith = [&](const std::string &keys, const std::string &out) {
    Manifest changed = manifest;
    changed.configJson.replace(changed.configJson.find("\"lr\""), 0, keys);
    runManifest(changed, out);
    return checkpoints(out);
  };
  EXPECT_EQ(runWith("", "a"),
            (std::vector<std::string>{"checkpoint-000004", "checkpoint-000006",
                                      "checkpoint-000008"}));
  EXPECT_EQ(runWith("\"keep\":1,", "b"),
            std::vector<std::string>{"checkpoint-000008"});
  EXPECT_EQ(runWith("\"keep\":0,", "c").size(), 4u);
  EXPECT_EQ(folder.list("b").size(), 5u); // and no removed checkpoint
  options.saveEvery = 0;
  EXPECT_EQ(runWith("\"save_minutes\":1e-9,\"keep\":0,", "d").size(), 8u);
  EXPECT_EQ(runWith("\"save_minutes\":0,", "e").size(), 1u);
}

TEST_F(Training, LatestPassesOverWhatIsTorn) {
  options.saveEvery = 2;
  run("a");
  folder.write("a/checkpoint-000008/model.safetensors", "torn");
  options.resume = "latest";
  ::testing::internal::CaptureStderr();
  run("a");
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the checkpoint is torn"), std::string::npos) << said;
  EXPECT_NE(said.find("it is passed over"), std::string::npos) << said;
  EXPECT_NE(printed.find("resuming " + folder.path("a/checkpoint-000006")),
            std::string::npos)
      << printed;
}

// The latest checkpoint is neither the one with the latest time stamp, which a
// copy changes, nor the one with the most steps, which may be of an abandoned
// run.
TEST_F(Training, TheLatestCheckpointIsNamed) {
  namespace fs = std::filesystem;
  options.saveEvery = 2;
  options.steps = 8;
  options.horizon = 12;
  run("a");
  EXPECT_EQ(folder.read("a/latest"), "checkpoint-000008\ncheckpoint-000006\n");
  auto touch = [&](const std::string &name, int minutes) {
    fs::last_write_time(folder.path("a/" + name + "/state.json"),
                        fs::file_time_type::clock::now() +
                            std::chrono::minutes(minutes));
  };
  touch("checkpoint-000006", 5);
  auto goesOnFrom = [&](const std::string &name) {
    options.dryRun = true;
    options.steps = 12;
    options.resume = folder.path("a");
    run("a");
    options.dryRun = false;
    return printed.find("steps " + std::to_string(std::stoi(name) + 1) +
                        " to 12") != std::string::npos;
  };
  EXPECT_TRUE(goesOnFrom("8")) << printed;
  // After a resume, the resumed checkpoint is the latest until another is
  // saved.
  options.resume = folder.path("a/checkpoint-000004/");
  before = [](BigramExecutor &, const std::string &, int64_t step) {
    if (step == 5)
      throw RunError("a rank has gone");
  };
  EXPECT_EQ(messageOf<RunError>([&] { run("a"); }),
            "a rank has gone; --resume " + options.resume + " goes on");
  before = nullptr;
  EXPECT_EQ(folder.read("a/latest"), "checkpoint-000004\n");
  EXPECT_TRUE(goesOnFrom("4")) << printed;
  // If the checkpoint that was resumed is missing or damaged, the checkpoint
  // that was written last is used.
  fs::remove_all(folder.path("a/checkpoint-000004"));
  EXPECT_TRUE(goesOnFrom("6")) << printed;
  folder.write("a/latest", "../a");
  EXPECT_TRUE(goesOnFrom("6")) << printed;
  // The process was killed before the checkpoint that `latest` names was
  // complete.
  folder.write("a/latest", "checkpoint-000010\ncheckpoint-000008\n");
  EXPECT_TRUE(goesOnFrom("8")) << printed;
  // A symbolic link or FIFO in place of the file `latest` is replaced.
  for (bool isLink : {true, false}) {
    fs::remove(folder.path("a/latest"));
    if (isLink)
      fs::create_symlink("checkpoint-000002", folder.path("a/latest"));
    else
      ASSERT_EQ(::mkfifo(folder.path("a/latest").c_str(), 0666), 0);
    options.resume = folder.path("a/checkpoint-000006");
    options.steps = 7;
    run("a");
    EXPECT_EQ(folder.read("a/latest"),
              "checkpoint-000007\ncheckpoint-000006\n");
    fs::remove_all(folder.path("a/checkpoint-000007"));
  }
}

// `latest` names the run that saved a checkpoint last, whatever checkpoints
// older runs name.
TEST_F(Training, LatestIsOfTheRunThatSavedLast) {
  namespace fs = std::filesystem;
  const fs::path here = fs::current_path();
  fs::current_path(folder.path(""));
  options.saveEvery = 2;
  options.steps = 8;
  options.horizon = 12;
  run("");
  run("");
  fs::remove("runs/bigram-2/latest");
  folder.write("runs/bigram-2/checkpoint-000008/model.safetensors", "torn");
  options.resume = "latest";
  options.dryRun = true;
  options.steps = 12;
  ::testing::internal::CaptureStderr();
  run("");
  ::testing::internal::GetCapturedStderr();
  EXPECT_NE(printed.find("steps 7 to 12"), std::string::npos) << printed;
  fs::current_path(here);
}

TEST_F(Training, AResumeIsTheSameRun) {
  options.steps = 4;
  options.horizon = 8;
  run("a");
  options.horizon.reset();
  options.steps.reset();
  options.resume = folder.path("a/checkpoint-000004");
  Manifest other = bigramManifest(model);
  auto change = [&](const std::string &from, const std::string &to) {
    other = bigramManifest(model);
    other.configJson.replace(other.configJson.find(from), from.size(), to);
  };
  auto refused = [&] {
    return messageOf<InputError>([&] { runManifest(other, "b"); });
  };
  change("\"lr\":0.5", "\"lr\":0.25");
  EXPECT_NE(refused().find("would not go on as the same run: train.lr = 0.25 "
                           "(was 0.5); leave it as it was, or say that it is "
                           "meant with --accept train.lr"),
            std::string::npos)
      << refused();
  options.accepted = {"train.lr"};
  runManifest(other, "b");
  EXPECT_NE(printed.find("train.lr = 0.25 (was 0.5 up to step 4)"),
            std::string::npos)
      << printed;
  EXPECT_DOUBLE_EQ(log("b")[0]["lr"].get<double>(), 0.25 * 4 / 8);
  options.accepted.clear();
  // Tries other data, the same data at another path, and missing data.
  std::string text = folder.read("x.txt");
  folder.write("y.txt", text + "\1");
  folder.write("z.txt", text);
  options.data = folder.path("y.txt");
  other = bigramManifest(model);
  EXPECT_NE(refused().find("y.txt is not the data that it was trained on"),
            std::string::npos)
      << refused();
  options.data = folder.path("z.txt");
  runManifest(other, "c");
  options.data.clear();
  std::filesystem::remove(folder.path("x.txt"));
  EXPECT_NE(
      refused().find("the data of its run is gone, " + folder.path("x.txt")),
      std::string::npos)
      << refused();
  folder.write("x.txt", text);
  // Settings that may change when a run continues in its own folder.
  change("\"lr\":0.5", "\"on_nan\":\"skip\",\"lr\":0.5");
  change("\"lr\":0.5", "\"keep\":2,\"lr\":0.5");
  runManifest(other, "a");
  EXPECT_EQ(log("a").size(), 8u);
  EXPECT_TRUE(std::filesystem::exists(folder.path("a/config-000004.toml")));
  EXPECT_NE(folder.read("a/config.toml").find("keep = 2"), std::string::npos);
  EXPECT_NE(folder.read("a/log.jsonl").find("{\"event\":\"resume\",\"step\":4"),
            std::string::npos);
}

TEST_F(Training, BeginsWithOtherWeights) {
  run("a");
  options.weights = folder.path("a/checkpoint-000008");
  options.steps = 1;
  run("b");
  EXPECT_LT(losses("b")[0], losses("a")[6]);
  EXPECT_EQ(log("b")[0]["step"], 1);
  options.weights += "/model.safetensors";
  run("c");
  EXPECT_EQ(losses("b"), losses("c"));
  writeSafetensors(folder.path("w.safetensors"),
                   {{"table", "f64", {2}}, {"b", "f64", {3}}},
                   [](size_t i, std::vector<std::byte> &bytes) {
                     bytes.resize(i ? 24 : 16);
                   });
  options.weights = folder.path("w.safetensors");
  EXPECT_EQ(messageOf<InputError>([&] { run("d"); }),
            options.weights + ": does not fit the model 'bigram': not of the "
                              "model: 'b'; 'table' has shape [2], expected "
                              "[11, 11]");
}

// The number of microbatches only affects scheduling, unless a value is
// computed per microbatch: a router loss, a capacity, an asynchronous schedule.
TEST(Differences, WhatMicrobatchesChange) {
  auto changes = [](const std::string &parallel) {
    auto config = [&](int microbatches) {
      return R"({"train":{"microbatches":)" + std::to_string(microbatches) +
             R"(},"parallel":{)" + parallel + "}}";
    };
    std::vector<Difference> found = differences(config(1), config(2));
    EXPECT_EQ(found.size(), 1u);
    EXPECT_EQ(found.front().key, "train.microbatches");
    return found.front().changesMathematics;
  };
  EXPECT_FALSE(changes(""));
  EXPECT_FALSE(changes(R"("pipeline":{"schedule":"1f1b"})"));
  EXPECT_TRUE(changes(R"("pipeline":{"schedule":"pipedream-async"})"));
  EXPECT_TRUE(
      changes(R"("expert":{"aux_loss":0.01,"aux_scope":"microbatch"})"));
  EXPECT_TRUE(changes(R"("expert":{"z_loss":0.01,"aux_scope":"microbatch"})"));
  EXPECT_TRUE(
      changes(R"("expert":{"capacity":1.5,"capacity_scope":"microbatch"})"));
  // With a zero weight, the auxiliary loss is not computed.
  EXPECT_FALSE(
      changes(R"("expert":{"aux_loss":0.0,"aux_scope":"microbatch"})"));
  EXPECT_FALSE(changes(R"("expert":{"aux_loss":0.01,"aux_scope":"step"})"));
}

} // namespace
