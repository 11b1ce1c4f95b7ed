// Bodies of llama.cpp's API: no input breaks a decoder, and what one accepts /v2 would take.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orchestratord/http/llamacpp/request.h"
#include "orchestratord/http/llamacpp/rerank.h"
#include "wire/json.h"

namespace llamacpp = llorch::orchestratord::http::llamacpp;
using namespace llorch::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)llamacpp::decode_tokenize(text);
  (void)llamacpp::decode_detokenize(text);
  if (auto judged = llamacpp::decode_rerank(text)) {
    judged->submission.model = "any";
    if (!decode<SubmitRequest>(encode(judged->submission), UnknownKeys::kRefuse)) std::abort();
  }
  auto request = llamacpp::decode_apply_template(text);
  if (!request) return 0;
  if (!request->model) request->model = "any";
  if (!decode<SubmitRequest>(encode(*request), UnknownKeys::kRefuse)) std::abort();
  return 0;
}
