// Adds transfers to a table of compute actions.
//
// The result has no deadlock, for the following reason. Before each compute
// action, a rank's list has starts of receives, waits for receives and waits
// for sends, in this order; after it, starts of sends. Every entry gets a pair:
// the time at which its compute action starts in a simulation of the table, and
// its place in this order. The wait for a send is no earlier than the time at
// which the receiver starts to compute with the message. So an entry only waits
// for entries with smaller pairs, and there is no cycle. Waits that are even
// later only remove dependences.

#include "cleave/PipelineSchedule/Lower.h"

#include <algorithm>
#include <limits>
#include <map>

namespace cleave::pipeline {

namespace {

// A value that is sent from one rank to another.
struct Message {
  Action send, receive;
  int source, target;      // ranks
  size_t producer, reader; // places in their lists
};

// The transfers that are inserted before and after an action of a table.
struct Around {
  std::vector<const Message *> startReceives, waitReceives, waitSends,
      startSends;
};

class Lowering {
public:
  Lowering(const Table &table, const LowerOptions &options)
      : table(table), options(options), around(table.ranks) {
    for (int rank = 0; rank < table.ranks; ++rank)
      around[rank].resize(table.actions[rank].size() + 1);
  }

  Result<LoweredTable> run() {
    if (options.lookahead < 0)
      return Error{
          "a receive cannot be started after its reader: lookahead is " +
          std::to_string(options.lookahead)};
    if (options.spareSends < 0)
      return Error{"spareSends is " + std::to_string(options.spareSends) +
                   "; expected at least 0"};
    Result<Replay> replayed = replay(table, positive(options.times));
    if (!replayed)
      return Error{replayed.error()};
    findMessages();
    for (const Message &message : messages) {
      around[message.target][message.reader].waitReceives.push_back(&message);
      around[message.source][message.producer].startSends.push_back(&message);
    }
    placeReceives();
    placeSendWaits(*replayed);
    return emit();
  }

private:
  // Makes all times positive, because the proof that there are no deadlocks
  // needs actions that take time.
  Times positive(Times times) const {
    StageTimes defaults;
    times.stage.resize(table.stages, defaults);
    double longest = 0;
    for (const StageTimes &t : times.stage)
      longest = std::max({longest, t.f, t.i, t.w, t.backward()});
    double least = longest > 0 ? longest * 1e-6 : 1;
    for (StageTimes &t : times.stage) {
      t.b = std::max(t.backward(), least);
      t.f = std::max(t.f, least);
      t.i = std::max(t.i, least);
      t.w = std::max(t.w, least);
    }
    return times;
  }

  // Fills `messages`, in the order of the senders' lists.
  void findMessages() {
    // The positions of F and of I (or B) in the rank's list, by stage and
    // microbatch; both are on the same rank.
    struct Place {
      int rank = -1;
      size_t forward = 0, backward = 0;
    };
    std::vector<std::vector<Place>> places(
        table.stages, std::vector<Place>(table.microbatches));
    for (int rank = 0; rank < table.ranks; ++rank)
      for (size_t i = 0; i < table.actions[rank].size(); ++i) {
        const Action &action = table.actions[rank][i];
        if (!isCompute(action.kind))
          continue;
        Place &place = places[action.stage][action.microbatch];
        place.rank = rank;
        if (action.kind == ActionKind::F)
          place.forward = i;
        else if (action.kind != ActionKind::W)
          place.backward = i;
      }
    for (int rank = 0; rank < table.ranks; ++rank)
      for (size_t i = 0; i < table.actions[rank].size(); ++i) {
        auto [stage, kind, m] = table.actions[rank][i];
        if (kind == ActionKind::F && stage + 1 < table.stages) {
          const Place &to = places[stage + 1][m];
          if (to.rank != rank)
            messages.push_back({{stage, ActionKind::SendF, m},
                                {stage + 1, ActionKind::RecvF, m},
                                rank,
                                to.rank,
                                i,
                                to.forward});
        }
        if ((kind == ActionKind::I || kind == ActionKind::B) && stage > 0) {
          const Place &to = places[stage - 1][m];
          if (to.rank != rank)
            messages.push_back({{stage, ActionKind::SendB, m},
                                {stage - 1, ActionKind::RecvB, m},
                                rank,
                                to.rank,
                                i,
                                to.backward});
        }
      }
  }

  // Returns the position of the compute action that is `lookahead` compute
  // actions before the action at `place` in the rank's list; 0 if there are not
  // so many.
  size_t ahead(int rank, size_t place) const {
    for (int left = options.lookahead; left > 0 && place > 0;
         left -= isCompute(table.actions[rank][place].kind))
      --place;
    return place;
  }

  // Receives of a channel start in the order of its sends. If a receive is
  // needed early, all earlier receives of the channel also start early.
  void placeReceives() {
    std::map<std::pair<int, int>, std::vector<const Message *>> channels;
    for (const Message &message : messages)
      channels[{message.target, message.source}].push_back(&message);
    for (const auto &[ranks, channel] : channels) {
      int target = ranks.first;
      std::vector<size_t> place(channel.size());
      size_t limit = std::numeric_limits<size_t>::max();
      for (size_t k = channel.size(); k-- > 0;)
        place[k] = limit = std::min(limit, ahead(target, channel[k]->reader));
      for (size_t k = 0; k < channel.size(); ++k)
        around[target][place[k]].startReceives.push_back(channel[k]);
    }
  }

  // Returns the position of the sender's first compute action that, in the
  // simulation, starts after the receiver started to use the message; the end
  // of the list if there is no such action.
  size_t earliestWait(const Message &message, const Replay &replayed) const {
    double taken = replayed.spans[message.target][message.reader].start;
    const std::vector<Action> &list = table.actions[message.source];
    const std::vector<Span> &spans = replayed.spans[message.source];
    auto later = std::lower_bound(
        spans.begin() + message.producer + 1, spans.end(), taken,
        [](const Span &span, double time) { return span.start < time; });
    size_t place = later - spans.begin();
    while (place < list.size() && !isCompute(list[place].kind))
      ++place;
    return place;
  }

  // For each stage and direction, the number of send buffers is the maximum
  // number of messages in flight if each wait is as early as possible, plus
  // `spareSends`. The wait for a send is then placed where its buffer is needed
  // again.
  void placeSendWaits(const Replay &replayed) {
    std::map<std::tuple<int, int, ActionKind>, std::vector<const Message *>>
        outputs;
    for (const Message &message : messages)
      outputs[{message.source, message.send.stage, message.send.kind}]
          .push_back(&message);
    for (const auto &[key, sends] : outputs) {
      int rank = std::get<0>(key);
      std::vector<size_t> earliest;
      size_t slots = 0;
      for (size_t k = 0; k < sends.size(); ++k) {
        earliest.push_back(earliestWait(*sends[k], replayed));
        slots = std::max<size_t>(
            slots,
            std::count_if(earliest.begin(), earliest.end(), [&](size_t place) {
              return place > sends[k]->producer;
            }));
      }
      slots += options.spareSends;
      std::vector<size_t> underWay; // in flight: indices into `sends`
      auto wait = [&](size_t place) {
        auto first = std::min_element(
            underWay.begin(), underWay.end(),
            [&](size_t a, size_t b) { return earliest[a] < earliest[b]; });
        around[rank][place].waitSends.push_back(sends[*first]);
        underWay.erase(first);
      };
      for (size_t k = 0; k < sends.size(); ++k) {
        if (underWay.size() == slots)
          wait(sends[k]->producer);
        underWay.push_back(k);
      }
      while (!underWay.empty())
        wait(table.actions[rank].size());
    }
  }

  LoweredTable emit() const {
    LoweredTable lowered{table.schedule,
                         table.ranks,
                         table.stages,
                         table.microbatches,
                         table.asynchronous,
                         table.stagesOfRank,
                         {}};
    lowered.actions.resize(table.ranks);
    for (int rank = 0; rank < table.ranks; ++rank) {
      std::vector<LoweredAction> &list = lowered.actions[rank];
      for (size_t i = 0; i < around[rank].size(); ++i) {
        const Around &a = around[rank][i];
        for (const Message *message : a.startReceives)
          list.push_back({message->receive, Phase::Start, message->source});
        for (const Message *message : a.waitReceives)
          list.push_back({message->receive, Phase::Wait, message->source});
        for (const Message *message : a.waitSends)
          list.push_back({message->send, Phase::Wait, message->target});
        if (i < table.actions[rank].size())
          list.push_back({table.actions[rank][i], Phase::Run, -1});
        for (const Message *message : a.startSends)
          list.push_back({message->send, Phase::Start, message->target});
      }
    }
    return lowered;
  }

  const Table &table;
  const LowerOptions &options;
  std::vector<Message> messages;
  std::vector<std::vector<Around>>
      around; // by rank and place, plus the end of the list
};

} // namespace

Result<LoweredTable> lower(const Table &table, const LowerOptions &options) {
  return Lowering(table, options).run();
}

} // namespace cleave::pipeline
