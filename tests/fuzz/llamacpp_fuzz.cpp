// Bodies of llama.cpp's API: no input breaks a decoder, and what one accepts /v2 would take.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "orchestratord/http/llamacpp/completion/request.h"
#include "orchestratord/http/llamacpp/embedding/embedding.h"
#include "orchestratord/http/llamacpp/request.h"
#include "orchestratord/http/llamacpp/rerank.h"
#include "wire/json.h"

namespace llamacpp = llorch::orchestratord::http::llamacpp;
using namespace llorch::wire;

namespace {

void check(SubmitRequest submission) {
  if (!submission.model) submission.model = "any";
  if (!decode<SubmitRequest>(encode(submission), UnknownKeys::kRefuse)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)llamacpp::decode_tokenize(text);
  (void)llamacpp::decode_detokenize(text);
  if (auto embedded = llamacpp::decode_embedding(text)) check(*std::move(embedded));
  if (auto judged = llamacpp::decode_rerank(text)) check(std::move(judged->submission));
  if (auto filled = llamacpp::decode_infill(text)) check(std::move(filled->submission));
  if (auto completed = llamacpp::decode_completion(text)) {
    completed->submission.prompt = {.text = "any"};
    check(std::move(completed->submission));
  }
  if (auto told = llamacpp::decode_apply_template(text)) check(*std::move(told));
  return 0;
}
