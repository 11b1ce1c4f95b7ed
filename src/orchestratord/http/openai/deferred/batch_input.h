#pragma once
// The lines of a batch: what a client asks for in them, and what becomes of them. Pure.
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http/message.h"
#include "orchestratord/http/deferred/batch_lines.h"

namespace llorch::orchestratord::http::openai {

inline constexpr std::size_t kBatchErrorsMax = 100;

using deferred::BatchLine;

struct BatchLineError {
  std::int64_t line = 0;  // from 1
  std::string code;       // "invalid_json_line", "duplicate_custom_id", ...
  std::string message;
  std::string param;  // may be empty
};

// One line of the input, {"custom_id","method":"POST","url":endpoint,"body":{...}}.
tl::expected<BatchLine, BatchLineError> parse_batch_line(std::string_view line, std::string_view endpoint);

// The whole input before anything runs: every line is one, no custom_id comes twice.
class BatchCheck {
 public:
  explicit BatchCheck(std::string endpoint) : endpoint_(std::move(endpoint)) {}
  void take(std::string_view line);
  // Nothing came: an error of its own.
  void finish();
  std::int64_t lines() const { return lines_; }
  const std::vector<BatchLineError>& errors() const { return errors_; }

 private:
  void add(BatchLineError error);

  const std::string endpoint_;
  std::set<std::string, std::less<>> ids_;
  std::vector<BatchLineError> errors_;
  std::int64_t lines_ = 0;
};

// A line of the output or error file, with its end. `id`: of this line's request.
std::string batch_result_line(std::string_view id, std::string_view custom_id, const net::http::Response& answer,
                              std::string_view request_id);
// What such a line says; nothing: it is none.
std::optional<deferred::BatchResult> batch_result_of(std::string_view line);

}  // namespace llorch::orchestratord::http::openai
