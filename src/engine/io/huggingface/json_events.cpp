#include "engine/io/huggingface/json_events.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <optional>
#include <string>

namespace llorch::engine::io {
namespace {

namespace bj = boost::json;
using base::ErrorCode;

// Boost.JSON's events, strings and keys joined from the parts it gives them in.
class Handler {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  Handler(JsonEvents& events, std::size_t string_bytes_max) : events_(events), string_bytes_max_(string_bytes_max) {}

  const std::optional<base::Error>& refusal() const { return refusal_; }

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_object_begin(bj::error_code& ec) { return pass(events_.open_object(), ec); }
  bool on_object_end(std::size_t, bj::error_code& ec) { return pass(events_.close_object(), ec); }
  bool on_array_begin(bj::error_code& ec) { return pass(events_.open_list(), ec); }
  bool on_array_end(std::size_t, bj::error_code& ec) { return pass(events_.close_list(), ec); }
  bool on_key_part(bj::string_view part, std::size_t, bj::error_code& ec) { return join(part, ec); }
  bool on_key(bj::string_view part, std::size_t, bj::error_code& ec) {
    return join(part, ec) && pass(events_.key(std::exchange(text_, {})), ec);
  }
  bool on_string_part(bj::string_view part, std::size_t, bj::error_code& ec) { return join(part, ec); }
  bool on_string(bj::string_view part, std::size_t, bj::error_code& ec) {
    return join(part, ec) && pass(events_.string(std::exchange(text_, {})), ec);
  }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t number, bj::string_view, bj::error_code& ec) {
    return pass(number >= 0 ? events_.count(static_cast<std::uint64_t>(number)) : events_.other(), ec);
  }
  bool on_uint64(std::uint64_t number, bj::string_view, bj::error_code& ec) { return pass(events_.count(number), ec); }
  bool on_double(double, bj::string_view, bj::error_code& ec) { return pass(events_.other(), ec); }
  bool on_bool(bool, bj::error_code& ec) { return pass(events_.other(), ec); }
  bool on_null(bj::error_code& ec) { return pass(events_.other(), ec); }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }

 private:
  bool join(bj::string_view part, bj::error_code& ec) {
    if (text_.size() + part.size() > string_bytes_max_) {
      ec = bj::error::string_too_large;
      return false;
    }
    text_.append(part.data(), part.size());
    return true;
  }

  bool pass(base::Result<> result, bj::error_code& ec) {
    if (result) return true;
    refusal_ = std::move(result).error();
    ec = bj::error::exception;  // any; the refusal says what is wrong
    return false;
  }

  JsonEvents& events_;
  std::size_t string_bytes_max_;
  std::string text_;
  std::optional<base::Error> refusal_;
};

}  // namespace

base::Result<> walk_json(std::string_view json, std::string_view source, const JsonWalkLimits& limits,
                         JsonEvents& events) {
  bj::parse_options options;
  options.max_depth = limits.depth_max;
  bj::basic_parser<Handler> parser(options, events, limits.string_bytes_max);
  bj::error_code ec;
  const std::size_t end = parser.write_some(false, json.data(), json.size(), ec);
  if (parser.handler().refusal()) return base::fail(*parser.handler().refusal());
  if (!ec && json.find_first_not_of(" \t\r\n", end) == std::string_view::npos) return {};
  return base::fail(base::Error{
      ErrorCode::kCorruptFile,
      fmt::format("{}: at byte {}: not valid JSON: {}", source, end, ec ? ec.message() : "something follows the value"),
      {}}.with("offset", static_cast<std::int64_t>(end)));
}

}  // namespace llorch::engine::io
