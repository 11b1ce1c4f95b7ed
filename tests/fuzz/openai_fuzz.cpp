// Bodies of the OpenAI API: no input breaks a decoder, and what one accepts is a submission that /v2 would take.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "orchestratord/http/openai/conversations/conversation.h"
#include "orchestratord/http/openai/deferred/kept_items.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "orchestratord/http/openai/embeddings.h"
#include "orchestratord/http/openai/request.h"
#include "wire/json.h"

namespace openai = llorch::orchestratord::http::openai;
using namespace llorch::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto decode_body : {openai::decode_chat, openai::decode_completion, openai::decode_response}) {
    auto request = decode_body(text);
    if (request && !request->submission.model) request->submission.model = "m";  // the gateway finds it
    if (request && !decode<SubmitRequest>(encode(request->submission), UnknownKeys::kRefuse)) std::abort();
  }
  if (auto referring = openai::ReferringRequest::read(text); referring && *referring) {
    const std::string kept = openai::kept_text(openai::input_of(text), text);  // what is kept is outside bytes as well
    for (const auto& [id, references] : (*referring)->references()) {
      static_cast<void>((*referring)->insert(id, kept, references, 1 << 16));
      static_cast<void>(openai::listed_items(id, openai::input_kept(kept)));
    }
    static_cast<void>((*referring)->body());
  }
  if (const auto created = decode<CreateConversationRequest>(text, UnknownKeys::kRefuse); created && created->items) {
    if (const auto items = openai::new_items(*created->items, "conv_0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b")) {
      const openai::Conversation conversation{created->metadata.value_or(Metadata{}), *items};
      const auto again = openai::conversation_of(openai::text_of_conversation(conversation));
      if (!again || again->items.size() != items->size()) std::abort();
      static_cast<void>(openai::check_ids(*again, *items, "items"));
    }
  }
  static_cast<void>(openai::conversation_of(text));  // what is kept is outside bytes as well
  const auto call = openai::decode_embeddings(text);
  if (call && !decode<SubmitRequest>(encode(call->submission), UnknownKeys::kRefuse)) std::abort();
  return 0;
}
