// Arbitrary bytes as an output in each format: fed whole, in two pieces and byte by byte it is read the same; begun calls
// end or break, whole ones have an object of arguments, and nothing comes out that did not go in.
// As messages of a client and as tools: converted and made a grammar of, or refused with a message.
// Input: one byte for the format, or 255 for messages, 254 for tools; one for where to cut and whether a thought is open,
// or for what a template wants; the text. With LLORCH_FUZZ_FORMAT=NAME in the environment every output is in that format.
#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "text/formats/required_call.h"
#include "text/formats/testing/outputs.h"
#include "text/formats/turn.h"

namespace {

using namespace llorch::text::formats;
namespace formats_testing = llorch::text::formats::testing;

constexpr std::string_view kTools = R"([
  {"function": {"name": "f", "parameters": {"properties": {
    "a": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}}}}},
  {"function": {"name": "now"}}])";

// Begins, ends and breaks alternate, and each is of the call that is open.
void check_order(const std::vector<Delta>& deltas) {
  std::size_t begun = 0;
  bool is_open = false;
  for (const Delta& delta : deltas) {
    const bool is_begin = delta.kind == Delta::Kind::kCallBegin;
    const bool is_text = delta.kind == Delta::Kind::kContent || delta.kind == Delta::Kind::kReasoning;
    ASSERT(is_open != (is_begin || is_text));
    if (is_text) continue;
    begun += is_begin;
    ASSERT(delta.index == begun - 1);
    ASSERT(!is_begin || !delta.text.empty());
    is_open = is_begin || delta.kind == Delta::Kind::kArguments;
  }
  ASSERT(!is_open);
}

void convert(std::uint8_t wanted, std::string_view messages) {
  const Turn turn{.arguments_are_objects = (wanted & 1) != 0,
                  .ids_have_nine_characters = (wanted & 2) != 0,
                  .content_may_be_null = (wanted & 4) != 0,
                  .results_have_names = (wanted & 8) != 0,
                  .has_one_call = (wanted & 16) != 0};
  const auto once = turn.apply(messages);
  if (!once) {
    ASSERT(!once.error().message.empty());
    return;
  }
  const auto twice = turn.apply(*once);
  ASSERT(twice && *twice == *once);
}

void demand(std::uint8_t wanted, std::string_view json) {
  const auto tools = Tools::parse(json);
  if (!tools) {
    ASSERT(!tools.error().message.empty());
    return;
  }
  const Format format = all_formats()[wanted % all_formats().size()];
  const auto grammar = required_call(format, *tools, {.several = wanted % 2 == 0});
  ASSERT(grammar ? grammar->starts_with("root ::=") : !grammar.error().message.empty());
}

std::optional<Format> only_format() {
  const char* const wanted = std::getenv("LLORCH_FUZZ_FORMAT");
  if (wanted == nullptr) return std::nullopt;
  const std::optional<Format> format = parse_format(wanted);
  ASSERT(format.has_value(), "LLORCH_FUZZ_FORMAT names no format");
  return format;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  static const std::optional<Format> only = only_format();
  if (!only && data[0] == 255) convert(data[1], text);
  if (!only && data[0] == 254) demand(data[1], text);
  if (!only && data[0] >= 254) return 0;
  static const Tools tools = Tools::parse(kTools).value();
  const Format format = only.value_or(all_formats()[data[0] % all_formats().size()]);
  const Parser::Options options{.format = format, .tools = tools, .in_thought = data[1] % 2 == 1};
  const std::vector<Delta> whole = formats_testing::parse(options, {text});
  check_order(whole);

  const std::size_t cut = text.empty() ? 0 : data[1] / 2 * text.size() / 128;
  ASSERT(formats_testing::parse(options, {text.substr(0, cut), text.substr(cut)}) == whole);
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  ASSERT(formats_testing::parse(options, bytes) == whole);

  const formats_testing::Output output = formats_testing::output_of(whole);
  ASSERT(output.content.size() + output.reasoning.size() <= text.size());
  for (const formats_testing::Call& call : output.calls) {
    boost::json::error_code error;
    const boost::json::value arguments = boost::json::parse(call.arguments, error, {}, {.max_depth = 128});
    ASSERT(!error && arguments.is_object());
  }
  return 0;
}
