#pragma once
// The texts of which a batch consists: its requests, and what became of each. Pure.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::orchestratord::http::deferred {

struct BatchLine {
  std::string custom_id;
  std::string body;  // JSON of the request
};

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
