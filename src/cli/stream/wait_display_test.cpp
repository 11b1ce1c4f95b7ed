#include "cli/stream/wait_display.h"

#include <gtest/gtest.h>

namespace llorch::cli::stream {
namespace {

using Form = WaitDisplay::Form;

struct Shown {
  explicit Shown(Form form) : display(form, [this](std::string_view text) { written += text; }) {}
  void show(std::optional<std::int64_t> percent) {
    display.show(wire::WaitReason{"WAITING_FOR_WORKER_START", "A worker for this model is starting.", percent});
  }
  std::string take() { return std::exchange(written, {}); }

  std::string written;
  WaitDisplay display;
};

// M0-W-1621: a bar on a terminal, and nothing of it is left beside the answer.
TEST(WaitDisplay, ABarIsDrawnAnewAndWiped) {
  Shown s(Form::kBar);
  s.show(std::nullopt);
  EXPECT_EQ(s.take(), "") << "starting, and nothing is known of the load";
  s.show(0);
  EXPECT_EQ(s.take(), "\r\x1b[Kloading the model [....................] 0 %");
  s.show(50);
  EXPECT_EQ(s.take(), "\r\x1b[Kloading the model [##########..........] 50 %");
  s.show(50);
  EXPECT_EQ(s.take(), "");
  s.show(100);
  EXPECT_EQ(s.take(), "\r\x1b[Kloading the model [####################] 100 %");
  s.display.show(std::nullopt);
  EXPECT_EQ(s.take(), "\r\x1b[K");
  s.show(25);
  s.take();
  s.display.finish();
  EXPECT_EQ(s.take(), "\r\x1b[K");
  s.show(75);
  s.display.finish();
  EXPECT_EQ(s.take(), "") << "an answer that came before the display heard of it";
}

TEST(WaitDisplay, LinesAndObjectsSayEveryStepOnce) {
  for (const auto& [form, step, next] :
       {std::tuple{Form::kLines, "loading the model: 25 %\n", "loading the model: 75 %\n"},
        {Form::kJson, "{\"event\":\"load_progress\",\"percent\":25}\n",
         "{\"event\":\"load_progress\",\"percent\":75}\n"}}) {
    Shown s(form);
    s.show(25);
    s.show(25);
    EXPECT_EQ(s.take(), step);
    s.show(75);
    EXPECT_EQ(s.take(), next);
    s.display.show(std::nullopt);
    s.display.finish();
    EXPECT_EQ(s.take(), "");
  }
}

const wire::WaitReason kSlot{"WAITING_FOR_SLOT", "Every worker of this model is \"busy\".", {}};

// Promise 6: a wait explains itself to who stands in it, once, unless it is over at once.
TEST(WaitDisplay, AWaitIsSaidOnce) {
  for (const auto& [form, line] : {std::pair{Form::kBar, "waiting: Every worker of this model is \"busy\".\n"},
                                   {Form::kLines, "waiting: Every worker of this model is \"busy\".\n"},
                                   {Form::kJson,
                                    "{\"event\":\"waiting\",\"code\":\"WAITING_FOR_SLOT\",\"human\":\"Every worker of "
                                    "this model is \\\"busy\\\".\"}\n"}}) {
    Shown s(form);
    s.display.show(kSlot);
    s.display.show(kSlot);
    EXPECT_EQ(s.take(), "") << "it may be over at once";
    s.display.show(std::nullopt);
    for (int i = 0; i < 3; ++i) s.display.show(kSlot);
    EXPECT_EQ(s.take(), line);
    for (int i = 0; i < 9; ++i) s.display.show(kSlot);
    EXPECT_EQ(s.take(), "");
    for (int i = 0; i < 3; ++i) s.display.show(wire::WaitReason{"WAITING_FOR_POOL", "No pool.", {}});
    EXPECT_NE(s.take().find("No pool."), std::string::npos);
  }
}

TEST(WaitDisplay, NothingThatATerminalObeysIsShown) {
  Shown s(Form::kBar);
  for (int i = 0; i < 3; ++i) s.display.show(wire::WaitReason{"X", "No\x1b[2J\nfaked line", {}});
  EXPECT_EQ(s.take(), "waiting: No [2J faked line\n");
}

// A worker that is lost in the middle of the answer: said on a line of its own, and nothing of the answer is wiped.
TEST(WaitDisplay, AWaitInTheMiddleOfTheAnswer) {
  Shown s(Form::kBar);
  s.display.answered();
  s.display.show(kSlot);
  s.display.answered();
  s.display.show(kSlot);
  s.display.show(kSlot);
  EXPECT_EQ(s.take(), "") << "what a question saw before the answer went on";
  for (int i = 0; i < 3; ++i) s.show(50);
  EXPECT_EQ(s.take(), "\nwaiting: A worker for this model is starting.\n");
}

}  // namespace
}  // namespace llorch::cli::stream
