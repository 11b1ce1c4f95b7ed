#include "cli/chat/conversation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace llorch::cli::chat {
namespace {

TEST(ChatCommand, IsASlashAndAWord) {
  const auto system = parse("/system  be brief ");
  ASSERT_TRUE(system);
  EXPECT_EQ(system->kind, CommandKind::kSystem);
  EXPECT_EQ(system->argument, "be brief");
  EXPECT_EQ(parse("/exit")->kind, CommandKind::kQuit);
  EXPECT_EQ(parse("hello /exit")->kind, CommandKind::kSay);
  EXPECT_EQ(parse("//etc/fstab is a file")->argument, "/etc/fstab is a file");
  EXPECT_EQ(parse("")->argument, "");
}

TEST(ChatCommand, AnUnknownOneNamesTheNearest) {
  const auto wrong = parse("/stat");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(wrong.error().message.find("did you mean /stats?"), std::string::npos) << wrong.error().message;
  EXPECT_NE(parse("/undoo").error().message.find("/undo?"), std::string::npos);
  EXPECT_FALSE(parse("/"));
}

TEST(ChatSettings, AreCheckedAsTheFlagsAre) {
  RunOptions options;
  EXPECT_TRUE(set("temperature 0.25", options));
  EXPECT_TRUE(set("top_k  40", options));
  EXPECT_TRUE(set("max_tokens 7", options));
  EXPECT_EQ(options.temperature, 0.25);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_EQ(options.max_tokens, 7);
  for (const char* wrong : {"", "temperature", "temperature warm", "temperature 3", "temperature nan", "top_k -1",
                            "top_k 1.5", "seed 99999999999999999999", "max_tokens 0", "colour red"}) {
    EXPECT_FALSE(set(wrong, options)) << wrong;
  }
  EXPECT_EQ(options.temperature, 0.25);
  EXPECT_NE(settings(options).find("temperature 0.25\n"), std::string::npos);
}

TEST(Conversation, IsTakenBackByTurns) {
  Conversation c;
  EXPECT_FALSE(c.undo());
  c.say("one");
  c.answer("two");
  c.say("three");
  EXPECT_EQ(c.turns(), 2);
  EXPECT_EQ(
      c.messages("short").text,
      R"([{"role":"system","content":"short"},{"role":"user","content":"one"},{"role":"assistant","content":"two"},)"
      R"({"role":"user","content":"three"}])");
  EXPECT_FALSE(c.take_answer_back());  // it has none yet
  EXPECT_TRUE(c.undo());
  EXPECT_TRUE(c.take_answer_back());
  EXPECT_EQ(c.messages(std::nullopt).text, R"([{"role":"user","content":"one"}])");
  EXPECT_TRUE(c.undo());
  EXPECT_FALSE(c.undo());
}

TEST(Conversation, ShowsAnImageWithTheNextMessageAlone) {
  const std::string path = testing::TempDir() + fmt::format("chat_{}.png", ::getpid());
  std::ofstream(path) << "\x89PNG and so on";
  Conversation c;
  ASSERT_TRUE(c.add_image(path));
  EXPECT_FALSE(c.add_image(path + ".none"));
  EXPECT_EQ(c.images_waiting(), 1u);
  c.say("what is it?");
  c.say("and now?");
  EXPECT_EQ(c.images_waiting(), 0u);
  const std::string messages = c.messages(std::nullopt).text;
  EXPECT_NE(messages.find(R"({"type":"text","text":"what is it?"}]})"), std::string::npos) << messages;
  EXPECT_NE(messages.find(R"("content":"and now?")"), std::string::npos);
}

}  // namespace
}  // namespace llorch::cli::chat
