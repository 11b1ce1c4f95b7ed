#include "cli/models/pull.h"

#include <gtest/gtest.h>

namespace llorch::cli::models {
namespace {

wire::PullStatus fetching(std::int64_t done) {
  return {.pull_id = "p",
          .state = wire::PullState::kFetching,
          .bytes_done = done,
          .bytes_total = 100 << 20,
          .bytes_per_second = 10 << 20,
          .eta_ms = 1500};
}

std::string shown(PullDisplay::Form form, const std::vector<wire::PullStatus>& steps) {
  std::string out;
  PullDisplay display(form, "tale", [&](std::string_view text) { out += text; });
  for (const auto& step : steps) display.show(step);
  display.finish();
  return out;
}

TEST(PullDisplay, ABarOnATerminal) {
  EXPECT_EQ(shown(PullDisplay::Form::kBar, {fetching(50 << 20)}),
            "\r\x1b[Ktale: [############............] 50 %, 50.0 MiB of 100.0 MiB, 10.0 MiB/s, 2 s left\r\x1b[K");
}

TEST(PullDisplay, ALinePerTenth) {
  EXPECT_EQ(shown(PullDisplay::Form::kLines,
                  {{.state = wire::PullState::kLocating}, fetching(0), fetching(1), fetching(11 << 20)}),
            "tale: looking for it\n"
            "tale: 0 %, 0 B of 100.0 MiB, 10.0 MiB/s, 2 s left\n"
            "tale: 11 %, 11.0 MiB of 100.0 MiB, 10.0 MiB/s, 2 s left\n");
}

TEST(PullDisplay, Objects) {
  EXPECT_EQ(shown(PullDisplay::Form::kJson, {{.pull_id = "p", .state = wire::PullState::kFinishing}}),
            "{\"event\":\"pull_progress\",\"pull\":{\"pull_id\":\"p\",\"state\":\"finishing\",\"source\":\"\",\"bytes_"
            "done\":0,"
            "\"bytes_total\":0,\"bytes_per_second\":0,\"model_ref\":\"\",\"checksum\":\"\",\"size_bytes\":0}}\n");
}

}  // namespace
}  // namespace llorch::cli::models
