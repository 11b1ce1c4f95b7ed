#include "orchestratord/http/llamacpp/request.h"

#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/tools.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {

base::Result<wire::TokenizeRequest> decode_tokenize(std::string_view body) {
  TRY(chat::check_utf8(body));
  return wire::decode<wire::TokenizeRequest>(body, wire::UnknownKeys::kIgnore);
}

base::Result<wire::DetokenizeRequest> decode_detokenize(std::string_view body) {
  TRY(chat::check_utf8(body));
  return wire::decode<wire::DetokenizeRequest>(body, wire::UnknownKeys::kIgnore);
}

base::Result<wire::SubmitRequest> decode_apply_template(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto read = TRY(wire::decode<wire::ApplyTemplateRequest>(body, wire::UnknownKeys::kIgnore));
  wire::SubmitRequest out;
  out.messages = std::move(read.messages);
  out.tools = TRY(chat::template_tools(read.tools));
  out.chat_template_kwargs = std::move(read.chat_template_kwargs);
  out.add_generation_prompt = read.add_generation_prompt;
  out.model = std::move(read.model);
  TRY(chat::check_as_task(out));
  return out;
}

}  // namespace llorch::orchestratord::http::llamacpp
