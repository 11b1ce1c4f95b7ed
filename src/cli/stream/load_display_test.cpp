#include "cli/stream/load_display.h"

#include <gtest/gtest.h>

namespace llorch::cli::stream {
namespace {

using Form = LoadDisplay::Form;

struct Shown {
  explicit Shown(Form form) : display(form, [this](std::string_view text) { written += text; }) {}
  void show(std::optional<std::int64_t> percent) {
    display.show(contract::WaitReason{"WAITING_FOR_WORKER_START", "A worker for this model is starting.", percent});
  }
  std::string take() { return std::exchange(written, {}); }

  std::string written;
  LoadDisplay display;
};

// M0-W-1621: a bar on a terminal, and nothing of it is left beside the answer.
TEST(LoadDisplay, ABarIsDrawnAnewAndWiped) {
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

TEST(LoadDisplay, LinesAndObjectsSayEveryStepOnce) {
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

}  // namespace
}  // namespace llorch::cli::stream
