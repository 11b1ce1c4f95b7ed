#include "worker/metrics.h"

#include <gtest/gtest.h>

namespace llorch::worker {
namespace {

// Launches, graphs and times of every device, where somebody asked for them; else not a series of them.
TEST(Metrics, DevicesAreShownWhereTheyAreMeasured) {
  MetricsInput in{.worker_id = "w", .quant_kind = "Q8_0"};
  EXPECT_EQ(metrics_text(in).find("worker_kernel_launches_total"), std::string::npos);
  in.devices = {{.steps = 4, .rows = 9, .launches = 80, .graphs_made = 1, .graphs_replayed = 2, .graphs_missed = 2},
                {.steps = 4,
                 .rows = 9,
                 .launches = 81,
                 .graphs_dropped = 3,
                 .graphs_refused = 5,
                 .steps_timed = 3,
                 .seconds = 0.25}};
  const std::string text = metrics_text(in);
  const auto has = [&](const std::string& series, const std::string& rank, const std::string& value) {
    const std::string event = series.substr(std::min(series.size(), series.find(' ') + 1));
    const std::string name = series.substr(0, series.find(' '));
    std::string line = name + R"({component="worker-orcd",)";
    if (event != series) line += R"(event=")" + event + R"(",)";
    line += R"(quant_kind="Q8_0",rank=")" + rank + R"(",worker_id="w"} )" + value + "\n";
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  };
  has("worker_device_steps_total", "0", "4");
  has("worker_device_rows_total", "1", "9");
  has("worker_kernel_launches_total", "0", "80");
  has("worker_kernel_launches_total", "1", "81");
  has("worker_device_steps_timed_total", "1", "3");
  has("worker_device_step_seconds_total", "1", "0.25");
  has("worker_graph_events_total made", "0", "1");
  has("worker_graph_events_total replayed", "0", "2");
  has("worker_graph_events_total missed", "0", "2");
  has("worker_graph_events_total dropped", "1", "3");
  has("worker_graph_events_total refused", "1", "5");
}

TEST(Metrics, DroppedLogLinesAreCounted) {
  EXPECT_NE(
      metrics_text({.worker_id = "w", .quant_kind = "Q8_0", .log_lines_dropped = 7})
          .find("worker_log_lines_dropped_total{component=\"worker-orcd\",quant_kind=\"Q8_0\",worker_id=\"w\"} 7\n"),
      std::string::npos);
}

}  // namespace
}  // namespace llorch::worker
