#include "orchestratord/http/chat/vector_text.h"

#include <fmt/format.h>

#include <cstring>

#include "base/assert.h"
#include "base/base64.h"
#include "wire/embedding_text.h"

namespace llorch::orchestratord::http::chat {

void append_numbers(std::string& out, std::string_view vector) {
  const auto bytes = base::base64_decode(vector);
  ASSERT(bytes && bytes->size() % sizeof(float) == 0, "a vector of {} characters", vector.size());
  for (std::size_t at = 0; at < bytes->size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes->data() + at, sizeof value);
    out += fmt::format("{}{}", at == 0 ? "" : ",", value);
  }
}

double score_of(std::string_view score) {
  const auto value = wire::read_score(score);
  ASSERT(value, "a score of {} characters", score.size());
  return *value;
}

}  // namespace llorch::orchestratord::http::chat
