// Bodies of requests: no input breaks the decoder, what it accepts comes back from the encoder, and a key that stands twice
// is found as a naive look at the text finds it.
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "wire/json.h"
#include "wire/json_checks.h"
#include "wire/task.h"

namespace {

namespace bj = boost::json;
using namespace llorch::wire;

// Members as the parser meets them, before it drops any.
struct Counter {
  static constexpr std::size_t max_object_size = -1, max_array_size = -1, max_key_size = -1, max_string_size = -1;
  std::size_t members = 0;
  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_object_begin(bj::error_code&) { return true; }
  bool on_object_end(std::size_t n, bj::error_code&) { return members += n, true; }
  bool on_array_begin(bj::error_code&) { return true; }
  bool on_array_end(std::size_t, bj::error_code&) { return true; }
  bool on_key_part(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_key(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_string_part(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_string(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t, bj::string_view, bj::error_code&) { return true; }
  bool on_uint64(std::uint64_t, bj::string_view, bj::error_code&) { return true; }
  bool on_double(double, bj::string_view, bj::error_code&) { return true; }
  bool on_bool(bool, bj::error_code&) { return true; }
  bool on_null(bj::error_code&) { return true; }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }
};

std::size_t members_of(const bj::value& value) {
  std::size_t count = 0;
  if (value.is_object()) {
    for (const auto& member : value.get_object()) count += 1 + members_of(member.value());
  } else if (value.is_array()) {
    for (const auto& item : value.get_array()) count += members_of(item);
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bj::error_code failed;
  const bj::value parsed = bj::parse(bj::string_view(text.data(), text.size()), failed);
  if (!failed) {
    bj::basic_parser<Counter> parser{bj::parse_options{}};
    bj::error_code again;
    parser.write_some(false, text.data(), text.size(), again);
    const bool twice = parser.handler().members != members_of(parsed);
    bj::error_code no_json;
    bj::parse(bj::serialize(parsed), no_json);
    if (check_json(text, parsed).has_value() == (twice || no_json)) std::abort();
  }
  const auto task = decode<SubmitRequest>(text, UnknownKeys::kRefuse);
  if (task && !decode<SubmitRequest>(encode(*task), UnknownKeys::kRefuse)) std::abort();
  return 0;
}
