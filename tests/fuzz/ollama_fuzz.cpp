// Bodies of the Ollama API: no input breaks a decoder, and what one accepts is a submission that /v2 would take.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orchestratord/http/ollama/embeddings.h"
#include "orchestratord/http/ollama/pull.h"
#include "orchestratord/http/ollama/request.h"
#include "wire/json.h"

namespace ollama = llorch::orchestratord::http::ollama;
using namespace llorch::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)ollama::decode_show(text);
  for (const auto decode_body : {ollama::decode_chat, ollama::decode_generate}) {
    const auto request = decode_body(text);
    if (!request || request->only_finds_model) continue;
    if (!decode<SubmitRequest>(encode(request->submission), UnknownKeys::kRefuse)) std::abort();
  }
  for (const auto decode_body : {ollama::decode_embed, ollama::decode_embeddings}) {
    const auto call = decode_body(text);
    if (!call || call->only_finds_model) continue;
    if (!decode<SubmitRequest>(encode(call->submission), UnknownKeys::kRefuse)) std::abort();
  }
  (void)ollama::decode_pull(text);
  (void)ollama::decode_copy(text);
  (void)ollama::decode_delete(text);
  return 0;
}
