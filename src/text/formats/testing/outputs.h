#pragma once
// Outputs to deltas, for tests and fuzzers.
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/parser.h"

namespace llorch::text::formats::testing {

inline std::vector<Delta> joined(const std::vector<Delta>& deltas) {
  std::vector<Delta> out;
  for (const Delta& delta : deltas) {
    const bool is_text = delta.kind == Delta::Kind::kContent || delta.kind == Delta::Kind::kReasoning ||
                         delta.kind == Delta::Kind::kArguments;
    if (is_text && !out.empty() && out.back().kind == delta.kind && out.back().index == delta.index) {
      out.back().text += delta.text;
    } else {
      out.push_back(delta);
    }
  }
  return out;
}

inline std::vector<Delta> parse(const Parser::Options& options, const std::vector<std::string_view>& pieces) {
  Parser parser(options);
  std::vector<Delta> all;
  for (const std::string_view piece : pieces) {
    std::vector<Delta> out;
    parser.feed(piece, out);
    all.insert(all.end(), out.begin(), out.end());
  }
  std::vector<Delta> out;
  parser.finish(out);
  all.insert(all.end(), out.begin(), out.end());
  return joined(all);
}

struct Call {
  std::string name, id, arguments;
  bool operator==(const Call&) const = default;
};

// What a client that does not stream sees: broken calls are gone.
struct Output {
  std::string content, reasoning;
  std::vector<Call> calls;
  bool operator==(const Output&) const = default;
};

inline Output output_of(const std::vector<Delta>& deltas) {
  Output output;
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::kContent: output.content += delta.text; break;
      case Delta::Kind::kReasoning: output.reasoning += delta.text; break;
      case Delta::Kind::kCallBegin: output.calls.push_back({delta.text, delta.id, {}}); break;
      case Delta::Kind::kArguments: output.calls.back().arguments += delta.text; break;
      case Delta::Kind::kCallEnd: break;
      case Delta::Kind::kCallBroken: output.calls.pop_back(); break;
    }
  }
  return output;
}

}  // namespace llorch::text::formats::testing
