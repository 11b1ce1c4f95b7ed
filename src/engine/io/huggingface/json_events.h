#pragma once
// A JSON text as a sequence of events, for readers that must see every key (also one given twice) and keep no tree.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace llorch::engine::io {

// What a reader of events overrides; the first error it returns ends the walk. Keys and strings are valid UTF-8.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual base::Result<> open_object() = 0;
  virtual base::Result<> close_object() = 0;
  virtual base::Result<> open_list() = 0;
  virtual base::Result<> close_list() = 0;
  virtual base::Result<> key(std::string_view key) = 0;
  virtual base::Result<> string(std::string_view text) = 0;
  virtual base::Result<> count(std::uint64_t number) = 0;  // an integer of at least 0
  virtual base::Result<> other() = 0;                      // another number, a bool or null
};

struct JsonWalkLimits {
  std::size_t depth_max = 8;
  std::size_t string_bytes_max = 4096;  // of a key or a string
};

// Walks exactly one JSON value and the space around it. Errors: CORRUPT_FILE ("SOURCE: at byte N: ..."), or what `events`
// returned.
base::Result<> walk_json(std::string_view json, std::string_view source, const JsonWalkLimits& limits,
                         JsonEvents& events);

}  // namespace llorch::engine::io
