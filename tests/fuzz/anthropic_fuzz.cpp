// Bodies of the Anthropic API: no input breaks a decoder, and what one accepts is a submission that /v2 would take.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orchestratord/http/anthropic/request.h"
#include "wire/json.h"

namespace anthropic = llorch::orchestratord::http::anthropic;
using namespace llorch::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto decode_body : {anthropic::decode_messages, anthropic::decode_count_tokens}) {
    const auto request = decode_body(text);
    if (request && !decode<SubmitRequest>(encode(request->submission), UnknownKeys::kRefuse)) std::abort();
  }
  return 0;
}
