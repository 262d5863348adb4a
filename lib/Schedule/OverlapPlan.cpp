// Plans when collectives start and end; see OverlapPlan.h.

#include "OverlapPlan.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <deque>

using namespace cleave::schedule;

namespace {

/// Safety factors, because times are estimates. A collective may start if the
/// time to its first reader is at most kEarly times the backlog, that is, the
/// duration of this collective and of all collectives with nearer readers that
/// have not started. A collective may end before its reader once kLate times
/// its own duration has passed since its start.
constexpr double kEarly = 2, kLate = 1.25;
/// Before each command, this many collectives at most are considered for a
/// start.
constexpr size_t kWindow = 64;

class Replay {
public:
  Replay(llvm::ArrayRef<Step> steps, llvm::ArrayRef<Transfer> transfers,
         std::vector<int64_t> live, int64_t budget, double contention)
      : steps(steps), transfers(transfers), live(std::move(live)),
        budget(budget), slower(1 + contention), states(transfers.size()) {
    this->live.resize(steps.size() + 1);
    for (const Step &step : steps)
      begins.push_back(begins.back() + (step.communicates ? 0 : step.seconds));
    for (size_t k = 0; k < transfers.size(); ++k)
      (transfers[k].need < steps.size() ? read : unread).push_back(k);
    llvm::stable_sort(read, [&](size_t a, size_t b) {
      return transfers[a].need < transfers[b].need;
    });
    llvm::stable_sort(unread, [&](size_t a, size_t b) {
      return transfers[a].ready < transfers[b].ready;
    });
    for (size_t k = 0; k < transfers.size(); ++k)
      if (transfers[k].heldBytes > 0 || isWaitedFor(k))
        byPlace.push_back(k);
    llvm::stable_sort(byPlace, [&](size_t a, size_t b) {
      return transfers[a].place < transfers[b].place;
    });
  }

  OverlapPlan run() {
    for (size_t at = 0; at < steps.size(); ++at) {
      endWhatIsDone(at);
      // Collectives that this step reads must start now; other collectives that
      // fit into the wait are queued after them.
      SmallVector<size_t> needed;
      for (size_t i = firstRead; i < read.size(); ++i) {
        if (transfers[read[i]].need > at)
          break;
        if (!states[read[i]].ended)
          needed.push_back(read[i]);
      }
      for (size_t k : needed)
        ensureStarted(k, at);
      double begin = now;
      for (size_t k : needed)
        begin = std::max(begin, states[k].done);
      fill(at, begin);
      for (size_t k : needed)
        if (!states[k].ended) // may have ended as a dependence
          end(k, at);
      const Step &step = steps[at];
      if (step.starts)
        start(*step.starts, at);
      if (step.communicates) {
        wait(link);
        plan.exposed += step.seconds;
        plan.communication += step.seconds;
        now += step.seconds;
        link = now;
      } else {
        double seconds = lasts(step, now);
        now += seconds;
        plan.compute += seconds;
      }
      for (size_t k : holding)
        live[at + 1] += transfers[k].heldBytes;
    }
    for (const llvm::SmallVector<size_t> &list : {read, unread})
      for (size_t k : list)
        ensureStarted(k, steps.size());
    for (size_t k = 0; k < transfers.size(); ++k)
      if (!states[k].ended)
        end(k, steps.size());
    return std::move(plan);
  }

private:
  template <typename T> using SmallVector = llvm::SmallVector<T>;

  struct State {
    bool started = false, ended = false;
    double done = 0;
  };

  /// Advances to `until` without computing.
  void wait(double until) {
    plan.exposed += std::max(0.0, until - now);
    now = std::max(now, until);
  }

  /// Returns the duration of a step that begins at `begin`. Collectives in
  /// flight slow it down.
  double lasts(const Step &step, double begin) const {
    double shared = std::max(0.0, link - begin);
    return shared >= step.seconds * slower
               ? step.seconds * slower
               : step.seconds + shared * (1 - 1 / slower);
  }

  void ensureStarted(size_t k, size_t at) {
    if (states[k].started)
      return;
    for (size_t before : transfers[k].after) {
      ensureStarted(before, at);
      if (!states[before].ended)
        end(before, at);
    }
    start(k, at);
  }

  void start(size_t k, size_t at) {
    const Transfer &transfer = transfers[k];
    states[k].started = true;
    states[k].done = link = std::max(link, now) + transfer.seconds;
    plan.communication += transfer.seconds;
    if (!transfer.pinned)
      plan.events.push_back({at, true, k});
    for (size_t i = at; i < transfer.place; ++i)
      live[i] += transfer.resultBytes;
  }

  void end(size_t k, size_t at) {
    if (states[k].done > now)
      plan.waits.push_back({k, at, states[k].done - now});
    wait(states[k].done);
    states[k].ended = true;
    if (!transfers[k].pinned)
      plan.events.push_back({at, false, k});
    llvm::erase(holding, k);
  }

  /// Ends collectives before their first reader, to free the memory of their
  /// operands or to let other collectives start. A collective ends if memory is
  /// short and its end frees operands, or if it has been complete for some time
  /// (kLate).
  void endWhatIsDone(size_t at) {
    while (firstRead < read.size() && states[read[firstRead]].ended)
      ++firstRead;
    while (!byPlace.empty() && transfers[byPlace.front()].place <= at) {
      if (!states[byPlace.front()].ended) {
        holding.push_back(byPlace.front());
        live[at] += transfers[byPlace.front()].heldBytes;
      }
      byPlace.pop_front();
    }
    for (size_t k : SmallVector<size_t>(holding)) {
      const Transfer &transfer = transfers[k];
      bool full = transfer.heldBytes > 0 && live[at] > budget;
      if (full)
        ensureStarted(k, at);
      if (states[k].started && !states[k].ended &&
          (full || states[k].done + (kLate - 1) * transfer.seconds <= now)) {
        end(k, at);
        live[at] -= transfer.heldBytes;
      }
    }
  }

  bool isWaitedFor(size_t k) const {
    return llvm::any_of(transfers, [&](const Transfer &other) {
      return llvm::is_contained(other.after, k);
    });
  }

  bool mayStart(size_t k, size_t at) const {
    const Transfer &transfer = transfers[k];
    return !states[k].started && !transfer.pinned && transfer.ready <= at &&
           llvm::all_of(transfer.after,
                        [&](size_t before) { return states[before].ended; });
  }

  bool fits(size_t k, size_t at) const {
    for (size_t i = at; i < transfers[k].place; ++i)
      if (live[i] + transfers[k].resultBytes > budget)
        return false;
    return true;
  }

  /// Starts as many collectives as keep the link busy until the end of this
  /// step, which begins at `begin`.
  void fill(size_t at, double begin) {
    auto over = [&] {
      return begin + (steps[at].communicates ? 0 : lasts(steps[at], begin));
    };
    while (link < over()) {
      size_t found = transfers.size(), looked = 0;
      double backlog = 0;
      for (size_t i = firstRead; i < read.size() && looked < kWindow; ++i) {
        size_t k = read[i];
        if (states[k].started)
          continue;
        ++looked;
        backlog += transfers[k].seconds;
        // If the collective does not start now, it can start at the end of this
        // step at the earliest. `left` is the time from then to its first
        // reader.
        double left = begins[transfers[k].need] - begins[at + 1];
        if (!mayStart(k, at) || left > kEarly * backlog || !fits(k, at))
          continue;
        found = k;
        break;
      }
      if (found == transfers.size()) {
        while (firstUnread < unread.size() &&
               states[unread[firstUnread]].started)
          ++firstUnread;
        looked = 0;
        for (size_t i = firstUnread; i < unread.size() && looked < kWindow;
             ++i, ++looked)
          if (mayStart(unread[i], at) && fits(unread[i], at)) {
            found = unread[i];
            break;
          }
      }
      if (found == transfers.size())
        return;
      start(found, at);
    }
  }

  llvm::ArrayRef<Step> steps;
  llvm::ArrayRef<Transfer> transfers;
  std::vector<int64_t> live;
  const int64_t budget;
  const double slower; ///< duration of overlapped compute, relative
  std::vector<State> states;
  std::vector<double> begins{0}; ///< start times without any waits
  llvm::SmallVector<size_t> read, unread;
  size_t firstRead = 0, firstUnread = 0;
  /// Collectives that should end before their readers if possible, because they
  /// keep their operands alive or other collectives depend on them. `byPlace`
  /// has those whose original place is after the current command. `holding` has
  /// those whose original place has been passed.
  std::deque<size_t> byPlace;
  llvm::SmallVector<size_t> holding;
  double now = 0, link = 0;
  OverlapPlan plan;
};

} // namespace

OverlapPlan cleave::schedule::planOverlap(llvm::ArrayRef<Step> steps,
                                          llvm::ArrayRef<Transfer> transfers,
                                          std::vector<int64_t> live,
                                          int64_t budget, double contention) {
  return Replay(steps, transfers, std::move(live), budget, contention).run();
}
