// Converts the events of a trace to the form of the C ABI.

#include "trace.h"

#include "positions.h"
#include "traffic.h"
#include "transport.h"

using namespace cleave;
using namespace cleave::program;

namespace {
struct Describe {
  const Program &program;
  const Command &command;

  const char *kind(const Launch &) const { return "launch"; }
  const char *kind(const Gemm &) const { return "gemm"; }
  const char *kind(const Attention &) const { return "attention"; }
  const char *kind(const GroupedGemm &) const { return "grouped_gemm"; }
  const char *kind(const Convolution &) const { return "convolution"; }
  const char *kind(const PlanRows &) const { return "plan_rows"; }
  const char *kind(const SortRows &) const { return "sort_rows"; }
  const char *kind(const PositionInExpert &) const {
    return "position_in_expert";
  }
  const char *kind(const Collective &x) const { return nameOf(x.kind); }
  const char *kind(const Wait &) const { return "wait"; }
  const char *kind(const Copy &) const { return "copy"; }
  const char *kind(const Fill &) const { return "fill"; }
  const char *kind(const Call &) const { return "call"; }
  const char *kind(const Repeat &) const { return "repeat"; }

  std::string name(const auto &op) const {
    const std::string &source = program.strings[command.source];
    return source.empty() ? kind(op) : source;
  }
  std::string name(const Call &call) const {
    const std::string &label = program.strings[call.label];
    return label.empty() ? program.actions[call.action].name : label;
  }
};
} // namespace

// To match sends with receives, messages are numbered in the order in which
// transfers start: the n-th start of the sender matches the n-th start of the
// receiver.
TraceReader::Message TraceReader::messageOf(const TraceEvent &event) {
  const Command &command =
      program.actions.at(event.action).commands.at(event.command);
  if (auto *wait = std::get_if<Wait>(&command.op)) {
    auto received = receives.find({event.action, wait->token});
    if (received == receives.end())
      return {};
    Message message = received->second;
    receives.erase(received);
    return message;
  }
  auto *collective = std::get_if<Collective>(&command.op);
  if (!collective || collective->kind != CollectiveKind::SendRecv)
    return {};
  auto end = [&](int position) {
    return static_cast<int32_t>(groupMember(program, axisIndices(program, rank),
                                            collective->group,
                                            collective->positions[position]));
  };
  Message message{end(0), end(1)};
  message.number = counts[{message.from, message.to}]++;
  if (message.from == rank)
    return message;
  receives[{event.action, collective->token}] = message;
  return {};
}

cleave_trace_event TraceReader::describe(const TraceEvent &event,
                                         std::set<std::string> &names) {
  const Command &command =
      program.actions.at(event.action).commands.at(event.command);
  Describe describe{program, command};
  cleave_trace_event out{};
  out.begin_ns = event.begin;
  out.end_ns = event.end;
  bool communicates = std::holds_alternative<Collective>(command.op) ||
                      std::holds_alternative<Wait>(command.op);
  out.stream = communicates ? CLEAVE_STREAM_TRANSFERS : CLEAVE_STREAM_COMPUTE;
  std::visit(
      [&](const auto &op) {
        out.kind = describe.kind(op);
        out.name = names.insert(describe.name(op)).first->c_str();
      },
      command.op);
  auto *launch = std::get_if<Launch>(&command.op);
  out.kernel = launch ? program.kernels[launch->kernel].symbol.c_str() : "";
  out.bytes = trafficOf(program, command);
  out.flops = command.flops;
  Message message = messageOf(event);
  out.from = message.from;
  out.to = message.to;
  out.message = message.number;
  return out;
}
