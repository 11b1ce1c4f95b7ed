#pragma once
// Requests of the chat and completion routes, as tests write them.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

#include "orchestratord/http/openai/request.h"

namespace llorch::orchestratord::http::openai {

inline std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

inline std::string chat_body(const std::string& members) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}";
}
inline Request chat(const std::string& members) {
  auto request = decode_chat(chat_body(members));
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
inline Request completion(const std::string& members) {
  auto request = decode_completion(R"({"model":"m","prompt":"p")" + (members.empty() ? "" : "," + members) + "}");
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
// What the chat template gets of these messages.
inline std::string messages_of(const std::string& messages) {
  auto request = decode_chat(R"({"model":"m","messages":)" + messages + "}");
  EXPECT_TRUE(request) << messages << ": " << request.error().message;
  return request ? request->submission.messages->text : "";
}

}  // namespace llorch::orchestratord::http::openai
