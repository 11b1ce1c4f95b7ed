#pragma once
// The texts of which a batch consists: its requests, and what became of each. Pure.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orchestratord/http/tasks/kept_facts.h"
#include "text/formats/read/values.h"

namespace llorch::orchestratord::http::deferred {

struct BatchLine {
  std::string custom_id;
  std::string body;  // JSON of the request
};

// How deep a line among the answers is nested at most: an answer repeats what its request held, or holds the arguments of a call,
// and the answer and its line are a few levels around them.
inline constexpr std::size_t kResultNestingMax = std::max(tasks::kDocumentNestingMax, text::formats::kNestingMax) + 16;

enum class BatchOutcome : std::uint8_t { kCompleted, kFailed, kUnanswered };
// What a line among the answers says.
struct BatchResult {
  std::string custom_id;
  BatchOutcome outcome = BatchOutcome::kCompleted;
};

// Takes a text piece by piece and gives its lines, without their ends, empty ones left out.
class LineSplitter {
 public:
  void feed(std::string_view bytes) { held_ += bytes; }
  // `last`: no more bytes come, so what has no end is a line as well.
  std::optional<std::string> next(bool last);

 private:
  std::string held_;
  std::size_t at_ = 0;
};

// The seed of a request that names none: 63 bits, which every JSON reader keeps.
std::uint64_t seed_of_name(std::string_view name);

}  // namespace llorch::orchestratord::http::deferred
