// Mistakes in command lists: what cannot be seen in a program of values.

#include "cleave/Check/Faults.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::check;
using namespace cleave::program;

namespace {

/// A transfer that ends with command `end`, and the command after it that is
/// the first to touch what was received.
struct Place {
  Action *action;
  size_t end, reader;
  const Collective *collective;
};

/// The addresses that a command reads or writes.
std::vector<const BufferRef *> touched(const Command &command) {
  std::vector<const BufferRef *> refs;
  if (auto *launch = std::get_if<Launch>(&command.op))
    for (const BufferRef &arg : launch->args)
      refs.push_back(&arg);
  if (auto *gemm = std::get_if<Gemm>(&command.op))
    refs = {&gemm->a.buffer, &gemm->b.buffer, &gemm->c.buffer, &gemm->bias};
  if (auto *attention = std::get_if<Attention>(&command.op))
    for (const AttentionRef *ref :
         {&attention->q, &attention->k, &attention->v, &attention->o,
          &attention->lse, &attention->dO})
      refs.push_back(&ref->buffer);
  if (auto *collective = std::get_if<Collective>(&command.op))
    for (const Transfer &part : collective->parts)
      refs.push_back(&part.src);
  if (auto *copy = std::get_if<Copy>(&command.op))
    refs = {&copy->src};
  return refs;
}

/// Whether `ref` begins within what the collective's part gives.
bool receives(const Collective &collective, const Transfer &part,
              int64_t members, const BufferRef &ref) {
  bool gathers = collective.kind == CollectiveKind::AllGather;
  int64_t count = part.count * (gathers ? members : 1);
  if (collective.kind == CollectiveKind::Exchange)
    count = part.dstOuter * part.dstInner;
  int64_t bytes = count * sizeOf(collective.dtype);
  return ref.present() && ref.arena == part.dst.arena &&
         ref.offset >= part.dst.offset && ref.offset < part.dst.offset + bytes;
}

bool reads(const Command &command, const Collective &collective) {
  int64_t members = 1;
  for (const SubAxis &axis : collective.group)
    members *= axis.size;
  for (const BufferRef *ref : touched(command))
    for (const Transfer &part : collective.parts)
      if (receives(collective, part, members, *ref))
        return true;
  return false;
}

/// The command that ends the collective `start`: its wait, or itself.
size_t endOf(const Action &action, size_t start) {
  int32_t token = std::get<Collective>(action.commands[start].op).token;
  if (token < 0)
    return start;
  for (size_t i = start + 1; i < action.commands.size(); ++i)
    if (auto *wait = std::get_if<Wait>(&action.commands[i].op))
      if (wait->token == token)
        return i;
  return start;
}

std::vector<Place> missingWaits(Program &program) {
  std::vector<Place> places;
  for (Action &action : program.actions)
    for (size_t start = 0; start < action.commands.size(); ++start) {
      auto *collective = std::get_if<Collective>(&action.commands[start].op);
      if (!collective)
        continue;
      size_t end = endOf(action, start);
      for (size_t reader = end + 1; reader < action.commands.size(); ++reader)
        if (reads(action.commands[reader], *collective)) {
          places.push_back({&action, end, reader, collective});
          break;
        }
    }
  return places;
}

} // namespace

bool check::isFaultOfCommands(llvm::StringRef kind) {
  return kind == "missing-wait";
}

mlir::LogicalResult check::injectFault(Program &program, llvm::StringRef kind,
                                       int64_t index, std::string &where) {
  llvm::raw_string_ostream text(where);
  std::vector<Place> places;
  if (isFaultOfCommands(kind))
    places = missingWaits(program);
  if (places.empty()) {
    text << "this program cannot have the fault " << kind
         << ": it has no transfer that a later command reads";
    return mlir::failure();
  }
  if (index >= static_cast<int64_t>(places.size())) {
    text << "index " << index << " of the fault " << kind
         << " is out of range; this program has " << places.size()
         << (places.size() == 1 ? " place" : " places") << " for it";
    return mlir::failure();
  }
  const Place &place = places[index < 0 ? places.size() / 2 : index];
  text << "transfer for " << program.strings[place.collective->purpose]
       << " in @" << place.action->name << " ends after the command that reads "
       << "it";
  const std::string &source =
      program.strings[place.action->commands[place.reader].source];
  if (!source.empty())
    text << " (" << source << ")";
  auto begin = place.action->commands.begin();
  std::rotate(begin + place.end, begin + place.end + 1,
              begin + place.reader + 1);
  return mlir::success();
}
