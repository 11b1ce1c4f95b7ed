// Bodies of the Anthropic API: no input breaks a decoder, and what one accepts is a submission that /v2 would take. Each line of a batch
// that is accepted is read back as its request.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orchestratord/http/anthropic/deferred/batch_texts.h"
#include "orchestratord/http/anthropic/request.h"
#include "wire/json.h"

namespace anthropic = llorch::orchestratord::http::anthropic;
using namespace llorch::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& request : {anthropic::decode_messages(text, 50'000), anthropic::decode_count_tokens(text)}) {
    if (request && !decode<SubmitRequest>(encode(request->submission), UnknownKeys::kRefuse)) std::abort();
  }
  const auto batch = anthropic::decode_batch(text);
  if (!batch) return 0;
  llorch::orchestratord::http::deferred::LineSplitter lines;
  lines.feed(batch->lines);
  std::int64_t lines_count = 0;
  while (const auto line = lines.next(true)) {
    ++lines_count;
    if (!anthropic::request_of_line(*line)) std::abort();
  }
  if (lines_count != batch->requests_count) std::abort();
  return 0;
}
