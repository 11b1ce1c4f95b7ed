// The pure parts: lines, facts, pages.
#include <gtest/gtest.h>

#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/deferred/batch_lines.h"
#include "orchestratord/http/deferred/list_page.h"
#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::deferred {
namespace {

TEST(Lines, ComeWholeHoweverTheyAreCut) {
  const std::string text = "one\n\ntwo\r\n  \nthree";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineSplitter lines;
    std::string got;
    const auto take = [&](bool last) {
      while (const auto line = lines.next(last)) got += *line + "|";
    };
    lines.feed(std::string_view(text).substr(0, cut));
    take(false);
    lines.feed(std::string_view(text).substr(cut));
    take(false);
    EXPECT_EQ(got, "one|two|") << cut;
    take(true);
    EXPECT_EQ(got, "one|two|three|") << cut;
  }
}

TEST(Lines, HaveSeedsOfTheirNames) {
  EXPECT_EQ(seed_of_name("batch_1/1"), seed_of_name("batch_1/1"));
  EXPECT_NE(seed_of_name("batch_1/1"), seed_of_name("batch_1/2"));
  EXPECT_LT(seed_of_name("batch_1/1"), 1ULL << 63);
}

TEST(Facts, SayHowFarABatchIs) {
  const net::http::Principal caller{net::http::Role::kTenant, "lab", "token:abc", "lab"};
  boost::json::object facts = fresh_facts(caller, 7, 1000);
  EXPECT_EQ(tasks::caller_from(facts.if_contains(kCaller)), caller);
  EXPECT_EQ(status_of(facts), "validating");
  EXPECT_EQ(count_of(facts, "total"), 7);
  EXPECT_EQ(tasks::number_of(facts, "expires_at"), 1000 + kBatchWindowS);
  set_count(facts, "failed", 2);
  EXPECT_EQ(count_of(facts, "failed"), 2);
  EXPECT_EQ(began_s(facts, "cancelling"), std::nullopt);
  set_status(facts, "cancelling", 1005);
  EXPECT_EQ(began_s(facts, "cancelling"), 1005);
  EXPECT_FALSE(is_final(status_of(facts)));
  for (const char* status : {"completed", "failed", "expired", "cancelled"}) EXPECT_TRUE(is_final(status));
  EXPECT_EQ(count_of({}, "total"), 0) << "facts of another version";
}

std::string page(std::initializer_list<std::pair<std::string, std::string>> queries, PageRules rules) {
  net::Request request;
  for (const auto& [name, value] : queries) request.query_params[name] = value;
  const std::vector<std::string> ids{"a", "b", "c", "d", "e"};
  const auto out = list_page(request, rules, ids, [&](std::size_t index) { return "\"" + ids[index] + "\""; });
  return out ? *out : std::string(out.error().message);
}

// Kept facts are what a file says.
TEST(Facts, CountInWhateverWasKept) {
  for (const char* kept : {"{}", R"({"request_counts":7})", R"({"request_counts":{"failed":"x"}})"}) {
    boost::json::object facts = tasks::object_of(kept);
    set_count(facts, "completed", 3);
    EXPECT_EQ(count_of(facts, "completed"), 3) << kept;
    EXPECT_EQ(count_of(facts, "failed"), 0) << kept;
  }
}

TEST(Pages, AreBehindOrBeforeAnEntry) {
  const PageRules openai{};
  EXPECT_EQ(page({}, openai),
            R"({"object":"list","data":["e","d","c","b","a"],"first_id":"e","last_id":"a","has_more":false})");
  EXPECT_EQ(page({{"limit", "2"}, {"after", "d"}}, openai),
            R"({"object":"list","data":["c","b"],"first_id":"c","last_id":"b","has_more":true})");
  EXPECT_EQ(page({{"order", "asc"}, {"after", "d"}}, openai),
            R"({"object":"list","data":["e"],"first_id":"e","last_id":"e","has_more":false})");
  const PageRules other{.most = 3, .after = "after_id", .before = "before_id", .ordered = false, .opening = ""};
  EXPECT_EQ(page({{"after_id", "b"}, {"order", "asc"}}, other),
            R"({"data":["a"],"first_id":"a","last_id":"a","has_more":false})");
  EXPECT_EQ(page({{"before_id", "b"}, {"limit", "2"}}, other),
            R"({"data":["d","c"],"first_id":"d","last_id":"c","has_more":true})");
  EXPECT_EQ(page({{"before_id", "d"}, {"limit", "2"}}, other),
            R"({"data":["e"],"first_id":"e","last_id":"e","has_more":false})");
  EXPECT_EQ(page({{"before_id", "e"}}, other), R"({"data":[],"first_id":null,"last_id":null,"has_more":false})");
  EXPECT_EQ(page({{"before_id", "b"}, {"after_id", "d"}}, other), "a page has one of after_id and before_id");
  EXPECT_EQ(page({{"before_id", "x"}}, other), "before_id is the id of an entry of this list");
  for (const char* limit : {"0", "4", "-1", "x", "1x", "99999999999999999999"}) {
    EXPECT_EQ(page({{"limit", limit}}, other), "limit is between 1 and 3") << limit;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::deferred
