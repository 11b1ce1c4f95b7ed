#include "orchestratord/http/openai/conversations/conversation.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "orchestratord/http/openai/request.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

constexpr std::string_view kCall = "conv_0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b";

std::vector<ListedItem> items_of(std::string sent) { return new_items({std::move(sent)}, kCall).value(); }

std::string field_of(const base::Error& error) {
  for (const auto& [key, value] : error.details) {
    if (key == "field") return std::get<std::string>(value);
  }
  return "";
}

TEST(Conversation, ComesBackAsItWas) {
  Conversation conversation{.metadata = {{{"a \"b\"", "c\n"}, {"d", ""}}},
                            .items = items_of(R"([{"role":"user","content":"hi"},{"type":"reasoning","id":"mine"}])")};
  const Conversation again = conversation_of(text_of_conversation(conversation)).value();
  EXPECT_EQ(again.metadata.texts, conversation.metadata.texts);
  ASSERT_EQ(again.items.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.items[i].id, conversation.items[i].id);
    EXPECT_EQ(again.items[i].json, conversation.items[i].json);
  }
  EXPECT_TRUE(conversation_of(text_of_conversation({})).value().items.empty());
  for (const char* text :
       {"", "[]", "{}", R"({"metadata":{}})", R"({"metadata":{},"items":[1]})", R"({"metadata":{"a":1},"items":[]})"}) {
    const auto read = conversation_of(text);
    EXPECT_TRUE(!read && read.error().code == base::ErrorCode::kCorruptFile) << text;
  }
}

TEST(Conversation, ItemsWithoutAnIdGetOne) {
  const auto items = items_of(R"([{"role":"user","content":"hi"},{"type":"function_call","call_id":"c","name":"f",)"
                              R"("arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"},)"
                              R"({"type":"message","id":"mine","role":"assistant","content":"so"}])");
  const std::string uuid(kCall.substr(5));
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].id, "msg_" + uuid + "_in0");
  EXPECT_EQ(items[1].id, "fc_" + uuid + "_in1");
  EXPECT_EQ(items[2].id, "fco_" + uuid + "_in2");
  EXPECT_EQ(items[3].id, "mine");
  EXPECT_TRUE(check_ids({}, items, "items"));
  EXPECT_TRUE(items_of("[]").empty());
}

TEST(Conversation, ItemsAreWhatAResponseTakes) {
  const auto refused_field = [](std::string sent) {
    const auto items = new_items({std::move(sent)}, kCall);
    return items ? "none" : field_of(items.error());
  };
  EXPECT_EQ(refused_field(R"([{"role":"user","content":"hi"},{"type":"item_reference","id":"msg_1"}])"),
            "items[1].type");
  EXPECT_EQ(refused_field(R"([{"type":"computer_call"}])"), "items[0].type");
  EXPECT_EQ(refused_field(R"([{"role":"user"}])"), "items[0].content");
  EXPECT_EQ(refused_field(R"([{"role":"god","content":"hi"}])"), "items");
  EXPECT_EQ(refused_field("[3]"), "items[0]");
  std::string many = "[";
  for (std::size_t i = 0; i < kNewItemsMax; ++i) many += R"({"role":"user","content":"x"},)";
  EXPECT_EQ(refused_field(many.substr(0, many.size() - 1) + "]"), "none");
  EXPECT_EQ(refused_field(many + R"({"role":"user","content":"x"}])"), "items");
}

TEST(Conversation, IdsAreOfOneItem) {
  const Conversation conversation{.items = {{"a", "{}"}, {"b", "{}"}}};
  EXPECT_TRUE(check_ids(conversation, {{"c", "{}"}}, "items"));
  EXPECT_EQ(field_of(check_ids(conversation, {{"c", "{}"}, {"b", "{}"}}, "items").error()), "items[1].id");
  EXPECT_EQ(field_of(check_ids(conversation, {{"c", "{}"}, {"c", "{}"}}, "input").error()), "input[1].id");
  for (const std::string& id : {std::string(), std::string("a/b"), std::string(257, 'x')}) {
    EXPECT_FALSE(check_ids(conversation, {{id, "{}"}}, "items")) << id;
  }
}

TEST(Conversation, IsShownAsThatApiShowsIt) {
  EXPECT_EQ(conversation_object("conv_1", 5, {{{"a", "b"}}}),
            R"({"id":"conv_1","object":"conversation","created_at":5,"metadata":{"a":"b"}})");
  EXPECT_EQ(conversation_object("conv_1", 5, {}),
            R"({"id":"conv_1","object":"conversation","created_at":5,"metadata":{}})");
  EXPECT_EQ(item_list({{"a", R"({"id":"a"})"}, {"b", R"({"id":"b"})"}}),
            R"({"object":"list","data":[{"id":"a"},{"id":"b"}],"first_id":"a","last_id":"b","has_more":false})");
  EXPECT_EQ(item_list({}), R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
}

TEST(Conversation, MetadataHasItsBounds) {
  const auto fits = [](const std::string& metadata) {
    return wire::decode<wire::UpdateConversationRequest>("{\"metadata\":" + metadata + "}", wire::UnknownKeys::kRefuse)
        .has_value();
  };
  std::string many;
  for (int i = 0; i < 16; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  EXPECT_TRUE(fits("{" + many + "}"));
  EXPECT_FALSE(fits("{" + many + ",\"x\":\"\"}"));
  std::string umlauts;
  for (int i = 0; i < 512; ++i) umlauts += "ä";
  EXPECT_TRUE(fits("{\"a\":\"" + umlauts + "\"}"));
  EXPECT_FALSE(fits("{\"a\":\"" + umlauts + "x\"}"));
  EXPECT_TRUE(fits("{\"" + std::string(64, 'k') + "\":\"\"}"));
  EXPECT_FALSE(fits("{\"" + std::string(65, 'k') + "\":\"\"}"));
  for (const char* metadata : {"3", "{\"a\":3}", "{\"a\":{}}", "null"}) EXPECT_FALSE(fits(metadata)) << metadata;
}

TEST(Conversation, IsNamedInARequestByItsIdOrAsAnObject) {
  const auto named = [](std::string_view conversation) {
    return decode_response(R"({"model":"m","input":"hi","conversation":)" + std::string(conversation) + "}");
  };
  for (const char* conversation : {R"("conv_1")", R"({"id":"conv_1"})"}) {
    const auto request = named(conversation);
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->answer.conversation.id, "conv_1");
    EXPECT_FALSE(request->answer.kept);
    EXPECT_TRUE(outlives_client(request->answer));
  }
  EXPECT_EQ(named("null")->answer.conversation.id, "");
  for (const char* conversation : {"3", "\"\"", "{}", R"({"id":""})", R"({"id":"a","x":1})", "[]"}) {
    EXPECT_FALSE(named(conversation)) << conversation;
  }
  const auto both = decode_response(R"({"model":"m","input":"hi","conversation":"c","previous_response_id":"r"})");
  ASSERT_FALSE(both);
  EXPECT_EQ(field_of(both.error()), "previous_response_id");
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
