// When collectives start and end: small hand-written cases, and random cases
// that are checked against the invariants of every plan.

#include "OverlapPlan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace cleave::schedule;

namespace {

constexpr int64_t kAnything = int64_t(1) << 40;

/// Returns the steps at which transfer `k` starts and ends.
std::pair<size_t, size_t> placesOf(const OverlapPlan &plan, size_t k) {
  std::pair<size_t, size_t> places(-1, -1);
  for (const OverlapPlan::Event &event : plan.events)
    if (event.transfer == k)
      (event.starts ? places.first : places.second) = event.step;
  return places;
}

/// A forward pass of `layers` layers, each of which reads a gathered matrix.
struct Forward {
  Forward(size_t layers, double compute, double gather, int64_t bytes) {
    for (size_t i = 0; i < layers; ++i) {
      steps.push_back({compute, false});
      Transfer transfer;
      transfer.seconds = gather;
      transfer.place = transfer.need = i;
      transfer.resultBytes = bytes;
      transfers.push_back(transfer);
    }
    live.assign(layers, bytes);
  }
  std::vector<Step> steps;
  std::vector<Transfer> transfers;
  std::vector<int64_t> live;
};

TEST(OverlapPlan, GathersRunOneLayerAhead) {
  Forward forward(6, 10, 8, 100);
  OverlapPlan plan =
      planOverlap(forward.steps, forward.transfers, forward.live, 200);
  for (size_t k = 1; k < 6; ++k)
    EXPECT_EQ(placesOf(plan, k), std::make_pair(k - 1, k));
  EXPECT_DOUBLE_EQ(plan.communication, 48);
  EXPECT_DOUBLE_EQ(plan.exposed, 8); // the first
}

// Communication takes longer than compute, so the link must never be idle.
TEST(OverlapPlan, ASlowLinkIsAlwaysBusy) {
  Forward forward(6, 10, 20, 100);
  OverlapPlan plan =
      planOverlap(forward.steps, forward.transfers, forward.live, 300);
  EXPECT_DOUBLE_EQ(plan.exposed, 6 * 20 - 5 * 10);
}

// A gather of 8 seconds runs during each of five layers. Contention slows the
// layer down: in these 8 seconds, it does only the work of 6.4 seconds.
TEST(OverlapPlan, CollectivesSlowDownWhatIsBesideThem) {
  Forward forward(6, 10, 8, 100);
  OverlapPlan plan = planOverlap(forward.steps, forward.transfers, forward.live,
                                 200, /*contention=*/0.25);
  EXPECT_DOUBLE_EQ(plan.compute, 5 * 11.6 + 10);
  EXPECT_DOUBLE_EQ(plan.exposed, 8);
  Forward slow(2, 10, 20, 100); // the second layer is alone
  plan = planOverlap(slow.steps, slow.transfers, slow.live, kAnything, 0.25);
  EXPECT_DOUBLE_EQ(plan.compute, 12.5 + 10);
  EXPECT_DOUBLE_EQ(plan.exposed, 20 + 7.5);
}

TEST(OverlapPlan, MemoryHoldsGathersBack) {
  Forward forward(6, 10, 8, 100);
  OverlapPlan plan =
      planOverlap(forward.steps, forward.transfers, forward.live, 150);
  for (size_t k = 0; k < 6; ++k)
    EXPECT_EQ(placesOf(plan, k), std::make_pair(k, k));
  EXPECT_DOUBLE_EQ(plan.exposed, 48);
}

// Three gradients, each reduced after the step that computes it. No step reads
// the sums.
TEST(OverlapPlan, SumsOfGradientsGoOnWhileTheNextAreComputed) {
  std::vector<Step> steps(3, {10, false});
  std::vector<Transfer> transfers(3);
  for (size_t k = 0; k < 3; ++k) {
    transfers[k].seconds = 6;
    transfers[k].place = transfers[k].ready = k + 1;
    transfers[k].need = 3;
    transfers[k].heldBytes = 100;
  }
  OverlapPlan plan = planOverlap(steps, transfers, {100, 100, 100}, kAnything);
  EXPECT_EQ(placesOf(plan, 0), std::make_pair(size_t(1), size_t(2)));
  EXPECT_EQ(placesOf(plan, 2), std::make_pair(size_t(3), size_t(3)));
  EXPECT_DOUBLE_EQ(plan.exposed, 6); // the last
  // There is no memory for a second gradient, so each sum must end before the
  // next step.
  plan = planOverlap(steps, transfers, {100, 100, 100}, 100);
  EXPECT_DOUBLE_EQ(plan.exposed, 18);
}

// A gather whose result is read soon starts before a sum whose result no step
// reads.
TEST(OverlapPlan, WhatIsReadSoonGoesFirst) {
  std::vector<Step> steps(4, {10, false});
  std::vector<Transfer> transfers(2);
  transfers[0].seconds = 9;
  transfers[0].place = transfers[0].ready = 1;
  transfers[0].need = 4;
  transfers[1].seconds = 9;
  transfers[1].place = transfers[1].need = 2;
  transfers[1].ready = 1;
  OverlapPlan plan = planOverlap(steps, transfers, {0, 0, 0, 0}, kAnything);
  EXPECT_EQ(placesOf(plan, 1), std::make_pair(size_t(1), size_t(2)));
  EXPECT_GE(placesOf(plan, 0).first, 1u);
  EXPECT_DOUBLE_EQ(plan.exposed, 0);
}

// The operand of the second sum is the result of the first one.
TEST(OverlapPlan, ChainsKeepTheirOrder) {
  std::vector<Step> steps(4, {10, false});
  std::vector<Transfer> transfers(2);
  transfers[0].seconds = transfers[1].seconds = 5;
  transfers[0].place = transfers[0].ready = transfers[1].place = 1;
  transfers[0].need = transfers[1].need = 4;
  transfers[1].after = {0};
  OverlapPlan plan = planOverlap(steps, transfers, {0, 0, 0, 0}, kAnything);
  EXPECT_LE(placesOf(plan, 0).second, placesOf(plan, 1).first);
  EXPECT_DOUBLE_EQ(plan.exposed, 0);
}

// The first transfer is read by the second transfer, and also by the step that
// reads the second transfer. It must end only once.
TEST(OverlapPlan, EachEndsOnce) {
  std::vector<Step> steps(2, {10, false});
  std::vector<Transfer> transfers(2);
  transfers[0].seconds = transfers[1].seconds = 5;
  transfers[0].need = transfers[1].place = transfers[1].need = 1;
  transfers[1].after = {0};
  OverlapPlan plan = planOverlap(steps, transfers, {0, 0}, kAnything);
  EXPECT_EQ(plan.events.size(), 4u);
}

TEST(OverlapPlan, PinnedOnesStartWhereTheyStand) {
  std::vector<Step> steps(4, {10, false});
  steps[1] = {0, false, 0};
  std::vector<Transfer> transfers(1);
  transfers[0].seconds = 8;
  transfers[0].pinned = true;
  transfers[0].place = transfers[0].ready = 1;
  transfers[0].need = 3;
  OverlapPlan plan = planOverlap(steps, transfers, {0, 0, 0, 0}, kAnything);
  EXPECT_TRUE(plan.events.empty());
  EXPECT_DOUBLE_EQ(plan.communication, 8);
  EXPECT_DOUBLE_EQ(plan.exposed, 0);
}

TEST(OverlapPlan, ABlockingCollectiveWaitsForTheLink) {
  std::vector<Step> steps = {{10, false}, {4, true}, {10, false}};
  std::vector<Transfer> transfers(1);
  transfers[0].seconds = 25;
  transfers[0].need = 3;
  OverlapPlan plan = planOverlap(steps, transfers, {0, 0, 0}, kAnything);
  EXPECT_DOUBLE_EQ(plan.exposed, 15 + 4);
  EXPECT_DOUBLE_EQ(plan.communication, 29);
}

TEST(OverlapPlan, RandomPlansKeepOrderAndReaders) {
  std::mt19937 random(1);
  auto below = [&](size_t limit) { return random() % limit; };
  for (int round = 0; round < 2000; ++round) {
    size_t count = 1 + below(12);
    std::vector<Step> steps(count);
    for (Step &step : steps)
      step = {double(below(20)), below(6) == 0};
    std::vector<int64_t> live(count);
    for (int64_t &bytes : live)
      bytes = below(100);
    std::vector<Transfer> transfers(below(10));
    for (size_t k = 0; k < transfers.size(); ++k) {
      Transfer &transfer = transfers[k];
      transfer.seconds = 1 + double(below(20));
      transfer.place = below(count + 1);
      transfer.ready = below(transfer.place + 1);
      transfer.need = transfer.place + below(count + 1 - transfer.place);
      transfer.resultBytes = below(50);
      transfer.heldBytes = below(2) * below(50);
    }
    llvm::sort(transfers, [](const Transfer &a, const Transfer &b) {
      return a.place < b.place;
    });
    // Some transfers read the results of other transfers, which steps may read,
    // too.
    for (size_t k = 1; k < transfers.size(); ++k)
      if (below(3) == 0) {
        transfers[k].after = {k - 1};
        if (below(2))
          transfers[k - 1].need = count;
      }
    int64_t budget = int64_t(below(200));
    double contention = double(below(3)) / 4;
    OverlapPlan plan = planOverlap(steps, transfers, live, budget, contention);
    ASSERT_EQ(plan.events.size(), 2 * transfers.size());
    size_t step = 0;
    std::vector<int> state(transfers.size());
    double communication = 0, compute = 0;
    for (const OverlapPlan::Event &event : plan.events) {
      ASSERT_LE(step, event.step);
      step = event.step;
      const Transfer &transfer = transfers[event.transfer];
      ASSERT_EQ(state[event.transfer]++, event.starts ? 0 : 1);
      ASSERT_LE(event.step, transfer.need);
      if (!event.starts)
        continue;
      ASSERT_GE(event.step, transfer.ready);
      for (size_t before : transfer.after)
        ASSERT_EQ(state[before], 2);
    }
    for (const Transfer &transfer : transfers)
      communication += transfer.seconds;
    for (const Step &at : steps)
      (at.communicates ? communication : compute) += at.seconds;
    EXPECT_DOUBLE_EQ(plan.communication, communication);
    EXPECT_GE(plan.compute, compute - 1e-9);
    EXPECT_LE(plan.compute, compute * (1 + contention) + 1e-9);
    EXPECT_LE(plan.exposed, communication + 1e-9);
    EXPECT_GE(plan.exposed, communication - plan.compute - 1e-9);
  }
}

} // namespace
