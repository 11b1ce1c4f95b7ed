#include "base/parse_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <utility>

namespace llorch::base {
namespace {

namespace bj = boost::json;

// Builds values as boost::json::parser does, but for doubles. A text is parsed in one piece, so no number comes in parts.
struct ExactHandler {
  static constexpr std::size_t max_object_size = bj::object::max_size();
  static constexpr std::size_t max_array_size = bj::array::max_size();
  static constexpr std::size_t max_key_size = bj::string::max_size();
  static constexpr std::size_t max_string_size = bj::string::max_size();

  bj::value_stack values;

  ExactHandler(unsigned char* scratch, std::size_t size) : values({}, scratch, size) {}

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_object_begin(bj::error_code&) { return true; }
  bool on_object_end(std::size_t members, bj::error_code&) {
    values.push_object(members);
    return true;
  }
  bool on_array_begin(bj::error_code&) { return true; }
  bool on_array_end(std::size_t items, bj::error_code&) {
    values.push_array(items);
    return true;
  }
  bool on_key_part(bj::string_view text, std::size_t, bj::error_code&) {
    values.push_chars(text);
    return true;
  }
  bool on_key(bj::string_view text, std::size_t, bj::error_code&) {
    values.push_key(text);
    return true;
  }
  bool on_string_part(bj::string_view text, std::size_t, bj::error_code&) {
    values.push_chars(text);
    return true;
  }
  bool on_string(bj::string_view text, std::size_t, bj::error_code&) {
    values.push_string(text);
    return true;
  }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t number, bj::string_view, bj::error_code&) {
    values.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, bj::string_view, bj::error_code&) {
    values.push_uint64(number);
    return true;
  }
  bool on_double(double about, bj::string_view text, bj::error_code&) {
    double number = about;  // zero or infinity where the text is out of range, which from_chars() leaves as it is
    std::from_chars(text.data(), text.data() + text.size(), number);
    values.push_double(number);
    return true;
  }
  bool on_bool(bool flag, bj::error_code&) {
    values.push_bool(flag);
    return true;
  }
  bool on_null(bj::error_code&) {
    values.push_null();
    return true;
  }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }
};

bj::value parse(std::string_view text, bj::error_code& error, bj::storage_ptr memory,
                const bj::parse_options& options) {
  unsigned char scratch[BOOST_JSON_STACK_BUFFER_SIZE];
  bj::basic_parser<ExactHandler> parser(options, scratch, sizeof scratch);
  bj::value_stack& values = parser.handler().values;
  values.reset(std::move(memory));
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && read < text.size()) error = bj::error::extra_data;
  if (error) return nullptr;
  return values.release();
}

}  // namespace

bj::value parse_json(std::string_view text, bj::error_code& error, bj::storage_ptr memory,
                     const bj::parse_options& options, std::uint64_t steps_max) {
  // Each member takes five bytes at least (`"":0,`): most texts are too short for that many steps, and are not looked at.
  if (text.size() * text.size() / 50 > steps_max && object_steps(text) > steps_max) {
    error = bj::error::object_too_large;
    return nullptr;
  }
  return parse(text, error, std::move(memory), options);
}

bj::value parse_known_json(std::string_view text) {
  bj::error_code error;
  bj::value value = parse(text, error, {}, {});
  if (error) throw boost::system::system_error(error);
  return value;
}

}  // namespace llorch::base
