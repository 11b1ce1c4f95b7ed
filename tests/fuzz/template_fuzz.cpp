// Arbitrary bytes as a chat template and the variables it renders: refused with a message, or rendered within the
// limits, the same again, with every byte of the runs accounted for.
// Input: u16 n, n bytes of JSON (an object, or else none), the template.
#include <boost/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/jinja/chat_template.h"

namespace {

using namespace llorch::text;

constexpr std::size_t kOutputMax = 1 << 16;

jinja::RenderInput input_of(std::string_view json) {
  jinja::RenderInput input;
  boost::json::error_code error;
  const boost::json::value parsed = boost::json::parse(json, error);
  if (!error && parsed.is_object()) input.variables = parsed.get_object();
  input.bos_token = "<s>";
  input.limits.steps_max = 20'000;
  input.limits.output_bytes_max = kOutputMax;
  input.limits.memory_bytes_max = 8 << 20;
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t json_bytes = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const auto parsed = jinja::ChatTemplate::parse(all.substr(2 + json_bytes));
  if (!parsed) {
    ASSERT(!parsed.error().message.empty());
    return 0;
  }
  const jinja::RenderInput input = input_of(all.substr(2, json_bytes));
  const auto rendered = parsed->render(input), again = parsed->render(input);
  ASSERT(rendered.has_value() == again.has_value());
  if (!rendered) {
    ASSERT(!rendered.error().message.empty());
    ASSERT(llorch::base::is_valid_utf8(rendered.error().message));
    return 0;
  }
  ASSERT(rendered->runs == again->runs);
  ASSERT(rendered->text().size() <= kOutputMax);
  ASSERT(llorch::base::is_valid_utf8(rendered->text()));
  for (std::size_t i = 0; i < rendered->runs.size(); ++i) {
    ASSERT(!rendered->runs[i].text.empty());
    ASSERT(llorch::base::is_valid_utf8(rendered->runs[i].text));
    ASSERT(i == 0 || rendered->runs[i].origin != rendered->runs[i - 1].origin);
  }
  return 0;
}
