// Timelines as text and as SVG.

#include "cleave/PipelineSchedule/Draw.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cleave::pipeline {

namespace {

// Returns the duration of the shortest action if all starts and ends are
// multiples of it and the drawing would not have too many columns; otherwise 0.
double unitOf(const Table &table, const Replay &replay) {
  double unit = 0;
  for (const std::vector<Span> &spans : replay.spans)
    for (const Span &span : spans)
      if (double length = span.end - span.start; length > 0)
        unit = unit > 0 ? std::min(unit, length) : length;
  constexpr double mostColumns = 4096;
  if (unit <= 0 || replay.makespan / unit > mostColumns)
    return 0;
  auto multiple = [&](double time) {
    double columns = time / unit;
    return std::abs(columns - std::round(columns)) < 1e-6;
  };
  for (int rank = 0; rank < table.ranks; ++rank)
    for (const Span &span : replay.spans[rank])
      if (!multiple(span.start) || !multiple(span.end))
        return 0;
  return unit;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// The fill colours of an action kind, for the first stage of a rank and for its
// further stages.
struct Colour {
  const char *fill[2];
  const char *ink;
  const char *meaning;
};

Colour colourOf(ActionKind kind) {
  switch (kind) {
  case ActionKind::F:
    return {{"#2f6db5", "#8fb8e6"}, "#ffffff", "forward"};
  case ActionKind::I:
    return {{"#c8553d", "#eba593"}, "#ffffff", "gradient of the input"};
  case ActionKind::B:
    return {{"#b8860b", "#e6c36a"}, "#ffffff", "whole backward pass"};
  case ActionKind::W:
    return {{"#3b8f5a", "#9fd3b2"}, "#ffffff", "gradients of weights"};
  default:
    return {{"#888888", "#bbbbbb"}, "#ffffff", "other"};
  }
}

} // namespace

std::string drawText(const Table &table, const Replay &replay) {
  double unit = unitOf(table, replay);
  size_t longest = 0;
  for (const std::vector<Action> &list : table.actions)
    for (const Action &action : list)
      longest = std::max(longest, print(action).size());
  size_t label = std::to_string(table.ranks - 1).size(), width = longest + 1;
  std::string text;
  for (int rank = 0; rank < table.ranks; ++rank) {
    std::string line = "rank " + padded(std::to_string(rank), label) + " |";
    const std::vector<Action> &list = table.actions[rank];
    size_t column = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const Span &span = replay.spans[rank][i];
      if (unit > 0 && span.end > span.start) {
        size_t start = std::lround(span.start / unit);
        size_t end = std::lround(span.end / unit);
        for (; column < start; ++column)
          line += " " + padded(".", longest);
        line += " " + padded(print(list[i]), width * (end - start) - 1);
        column = end;
      } else {
        line += " " + print(list[i]);
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string drawSvg(const Table &table, const Replay &replay) {
  const double row = 28, left = 64, top = 40;
  double shortest = replay.makespan;
  for (const std::vector<Span> &spans : replay.spans)
    for (const Span &span : spans)
      if (span.end > span.start)
        shortest = std::min(shortest, span.end - span.start);
  // The scale is such that a number fits into the box of the shortest action.
  // It is limited, so that the drawing does not become too wide.
  double scale = shortest > 0 ? 22 / shortest : 1;
  scale = std::min(scale, 20000 / std::max(replay.makespan, 1e-300));
  double width = left + replay.makespan * scale + 16;
  double height = top + row * table.ranks + 44;
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) +
      "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + number(width) +
      " " + number(height) +
      "\" font-family=\"sans-serif\" font-size=\"11\">\n" +
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
      "<text x=\"8\" y=\"22\" font-size=\"14\">" + table.schedule + ": " +
      std::to_string(table.stages) + " stages on " +
      std::to_string(table.ranks) + " ranks, " +
      std::to_string(table.microbatches) + " microbatches</text>\n";
  bool used[4] = {};
  for (int rank = 0; rank < table.ranks; ++rank) {
    double y = top + row * rank;
    svg += "<text x=\"8\" y=\"" + number(y + 17) + "\">rank " +
           std::to_string(rank) + "</text>\n<rect x=\"" + number(left) +
           "\" y=\"" + number(y) + "\" width=\"" +
           number(replay.makespan * scale) + "\" height=\"" + number(row - 4) +
           "\" fill=\"#f0f0f0\"/>\n";
    for (size_t i = 0; i < table.actions[rank].size(); ++i) {
      const Action &action = table.actions[rank][i];
      const Span &span = replay.spans[rank][i];
      if (span.end <= span.start)
        continue;
      used[static_cast<int>(action.kind)] = true;
      Colour colour = colourOf(action.kind);
      bool further = action.stage != table.stagesOfRank[rank].front();
      double x = left + span.start * scale, w = (span.end - span.start) * scale;
      svg += "<g><title>" + print(action) + "</title><rect x=\"" + number(x) +
             "\" y=\"" + number(y) + "\" width=\"" + number(w) +
             "\" height=\"" + number(row - 4) + "\" fill=\"" +
             colour.fill[further] + "\" stroke=\"#ffffff\"/>";
      if (w >= 8)
        svg += "<text x=\"" + number(x + w / 2) + "\" y=\"" + number(y + 16) +
               "\" text-anchor=\"middle\" fill=\"" +
               (further ? "#000000" : colour.ink) + "\">" +
               std::to_string(action.microbatch) + "</text>";
      svg += "</g>\n";
    }
  }
  double x = left, y = top + row * table.ranks + 12;
  for (ActionKind kind :
       {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B}) {
    if (!used[static_cast<int>(kind)])
      continue;
    Colour colour = colourOf(kind);
    svg += "<rect x=\"" + number(x) + "\" y=\"" + number(y) +
           "\" width=\"12\" height=\"12\" fill=\"" + colour.fill[0] +
           "\"/><text x=\"" + number(x + 16) + "\" y=\"" + number(y + 10) +
           "\">" + std::string(spelling(kind)) + ": " + colour.meaning +
           "</text>\n";
    x += 170;
  }
  return svg + "</svg>\n";
}

} // namespace cleave::pipeline
