#include "text/roles.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <string>

namespace llorch::text {
namespace {

// The messages after the rules up to this one, and whether each of them changed something.
std::string followed(RoleRule last, const std::string& messages) {
  auto list = boost::json::parse(messages).as_array();
  std::string changes;
  for (const RoleRule rule : kRoleRules) {
    changes += follow(rule, list) ? '+' : '-';
    if (rule == last) break;
  }
  return changes + boost::json::serialize(list);
}

TEST(Roles, LeadingSystemMessagesAreOneAndLaterOnesAreTheUsers) {
  EXPECT_EQ(
      followed(RoleRule::kOneSystemMessage,
               R"([{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"},
                         {"role":"assistant","content":"d"},{"role":"system","content":"e"},{"role":"user","content":"f"}])"),
      R"(+[{"role":"system","content":"a\n\nb"},{"role":"user","content":"c"},{"role":"assistant","content":"d"},)"
      R"({"role":"user","content":"e\n\nf"}])");
  EXPECT_EQ(
      followed(RoleRule::kNoSystemMessage,
               R"([{"role":"system","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}])"),
      R"(--+[{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"c"}])");
  EXPECT_EQ(
      followed(RoleRule::kNoSystemMessage, R"([{"role":"system","content":"a"},{"role":"assistant","content":"b"}])"),
      R"(--+[{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
}

TEST(Roles, WhatIsAsTemplatesWantItStays) {
  const std::string messages =
      R"([{"role":"system","content":"a"},{"role":"user","content":"b","name":"n"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"c"},)"
      R"({"role":"tool","content":"d"},{"role":"assistant","content":"e"},{"role":"user","content":"f"}])";
  EXPECT_EQ(followed(RoleRule::kTextsJoinResults, messages), "--" + messages);
  const std::string pair = R"([{"role":"query","content":"q"},{"role":"document","content":"d"}])";
  EXPECT_EQ(followed(RoleRule::kNoSystemMessage, pair), "---" + pair);
}

TEST(Roles, CallsKeepTheirMessage) {
  EXPECT_EQ(followed(RoleRule::kOneSystemMessage,
                     R"([{"role":"assistant","content":"a","reasoning_content":"x"},
                         {"role":"assistant","content":null,"reasoning_content":"y","tool_calls":[{"id":"1"}]},
                         {"role":"assistant","content":"b"}])"),
            R"(+[{"role":"assistant","content":"a","reasoning_content":"x\n\ny","tool_calls":[{"id":"1"}]},)"
            R"({"role":"assistant","content":"b"}])");
}

TEST(Roles, WhatIsSaidBehindAResultIsAPartOfIt) {
  EXPECT_EQ(
      followed(RoleRule::kTextsJoinResults,
               R"([{"role":"tool","tool_call_id":"1","content":"a"},{"role":"tool","tool_call_id":"2","content":"b"},
                         {"role":"user","content":"c","name":"n"},{"role":"system","content":"d"}])"),
      R"(++[{"role":"tool","tool_call_id":"1","content":"a"},{"role":"tool","tool_call_id":"2","content":"b\n\nc\n\nd"}])");
}

TEST(Roles, PartsOfContentStayInTheirOrder) {
  const auto joined = [](const std::string& first, const std::string& second) {
    return followed(RoleRule::kOneSystemMessage,
                    R"([{"role":"user","content":)" + first + R"(},{"role":"user","content":)" + second + "}]");
  };
  const std::string image = R"({"type":"image_url","image_url":{"url":"attached"}})";
  const auto text = [](const std::string& words) { return R"({"type":"text","text":")" + words + "\"}"; };
  const auto one = [](const std::string& parts) { return R"(+[{"role":"user","content":[)" + parts + "]}]"; };
  EXPECT_EQ(joined("[" + image + "," + text("a") + "]", R"("b")"), one(image + "," + text(R"(a\n\nb)")));
  EXPECT_EQ(joined(R"("a")", "[" + text("b") + "," + image + "]"), one(text(R"(a\n\nb)") + "," + image));
  EXPECT_EQ(joined("[" + image + "]", R"("b")"), one(image + "," + text("b")));
  EXPECT_EQ(joined("[]", R"("b")"), R"(+[{"role":"user","content":"b"}])");
  EXPECT_EQ(joined(R"("a")", "5"), R"(-[{"role":"user","content":"a"},{"role":"user","content":5}])");
}

}  // namespace
}  // namespace llorch::text
