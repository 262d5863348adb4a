// The report's JSON has the documented keys, and its text names the failures.

#include "cleave/Check/Report.h"

#include "llvm/Support/JSON.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace cleave::check;

namespace {

CheckReport example() {
  CheckReport report;
  report.shardedLosses = {5.5, 5.25};
  report.referenceLosses = {5.5, 5.25};
  report.tolerance = 1e-9;
  report.seed = 7;
  TensorReport good;
  good.name = "h.0.weight";
  good.kind = TensorKind::Gradient;
  good.relError = 1e-13;
  good.limit = 1e-9;
  good.worstIndex = {2, 3};
  good.rank = 1;
  report.tensors.push_back(good);
  return report;
}

std::string json(const CheckReport &report) {
  std::string text;
  llvm::raw_string_ostream out(text);
  writeJson(report, out);
  return text;
}

std::string text(const CheckReport &report) {
  std::string text;
  llvm::raw_string_ostream out(text);
  writeText(report, out);
  return text;
}

TEST(ReportTest, JsonHasTheKeysOfTheContract) {
  auto parsed = llvm::json::parse(json(example()));
  ASSERT_TRUE(bool(parsed));
  const llvm::json::Object *object = parsed->getAsObject();
  ASSERT_TRUE(object);
  EXPECT_EQ(object->getNumber("max_rel_error"), 1e-13);
  EXPECT_EQ(object->getNumber("tolerance"), 1e-9);
  EXPECT_EQ(object->getNumber("max_replica_difference"), 0);
  EXPECT_EQ(object->getInteger("seed"), 7);
  EXPECT_EQ(object->getBoolean("pass"), true);
  EXPECT_EQ(object->getObject("losses")->getArray("sharded")->size(), 2u);
  EXPECT_EQ(object->getObject("losses")->getArray("reference")->size(), 2u);
  const llvm::json::Object *tensor =
      object->getArray("tensors")->front().getAsObject();
  EXPECT_EQ(tensor->getString("name"), "h.0.weight");
  EXPECT_EQ(tensor->getString("kind"), "gradient");
  EXPECT_EQ(tensor->getString("part"), "exact");
  EXPECT_EQ(tensor->getNumber("rel_error"), 1e-13);
  EXPECT_EQ(*tensor->getArray("worst_index"), (llvm::json::Array{2, 3}));
  EXPECT_EQ(tensor->getInteger("rank"), 1);
  EXPECT_EQ(tensor->getBoolean("below_floor"), false);
}

TEST(ReportTest, InfiniteErrorsAreValidJson) {
  CheckReport report = example();
  report.tensors[0].relError = INFINITY;
  report.shardedLosses[1] = NAN;
  auto parsed = llvm::json::parse(json(report));
  ASSERT_TRUE(bool(parsed));
  EXPECT_TRUE(parsed->getAsObject()->get("max_rel_error")->kind() ==
              llvm::json::Value::Null);
  EXPECT_EQ(parsed->getAsObject()->getBoolean("pass"), false);
}

TEST(ReportTest, NoiseAboveTheCapIsSaid) {
  CheckReport report = example();
  EXPECT_FALSE(llvm::StringRef(json(report)).contains("above_noise_cap"));
  report.tensors[0].aboveNoiseCap = true;
  auto parsed = llvm::json::parse(json(report));
  ASSERT_TRUE(bool(parsed));
  const llvm::json::Object *tensor =
      parsed->getAsObject()->getArray("tensors")->front().getAsObject();
  EXPECT_EQ(tensor->getBoolean("above_noise_cap"), true);
  EXPECT_EQ(tensor->getBoolean("pass"), true);
}

TEST(ReportTest, AProgramThatStoppedFails) {
  CheckReport report = example();
  report.stopped = true;
  EXPECT_FALSE(report.pass());
}

TEST(ReportTest, NaNFails) {
  CheckReport report = example();
  report.tensors[0].relError = NAN;
  EXPECT_FALSE(report.pass());
  report = example();
  report.replicas = {NAN, "w"};
  EXPECT_FALSE(report.pass());
}

TEST(ReportTest, DifferentReplicasFail) {
  CheckReport report = example();
  EXPECT_TRUE(report.pass());
  report.replicas = {1e-300, "h.0.weight"};
  EXPECT_FALSE(report.pass());
  EXPECT_NE(text(report).find("replicas of h.0.weight differ by 1.00e-300"),
            std::string::npos);
}

TEST(ReportTest, TextPutsTheWorstFirst) {
  CheckReport report = example();
  TensorReport bad = report.tensors[0];
  bad.name = "bad";
  bad.relError = 0.25;
  report.tensors.push_back(bad);
  std::string table = text(report);
  EXPECT_LT(table.find("FAIL bad [2,3] on rank 1"), table.find("h.0.weight"));
  EXPECT_NE(table.find("FAIL: 2 comparisons, 1 beyond the limit"),
            std::string::npos);
}

TEST(ReportTest, AllFailuresAreListed) {
  CheckReport report = example();
  for (int i = 0; i < 30; ++i) {
    report.tensors.push_back(report.tensors[0]);
    report.tensors.back().relError = 1;
  }
  std::string table = text(report);
  size_t count = 0;
  for (size_t at = 0; (at = table.find("FAIL h", at)) != std::string::npos;
       ++at)
    ++count;
  EXPECT_EQ(count, 30u);
}

} // namespace
