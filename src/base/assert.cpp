#include "base/assert.h"

#include <cstdlib>

#include "base/log.h"

namespace llorch::base {

void assert_failed(const char* expression, const char* file, int line, const std::string& values) {
  log_last_line(
      {.level = LogLevel::kFatal,
       .event = "assert.failed",
       .correlation_id = {},
       .human = "A bug ends this process.",
       .fields = {{"where", fmt::format("{}:{}", file, line)}, {"expression", expression}, {"values", values}}});
  std::abort();
}

}  // namespace llorch::base
