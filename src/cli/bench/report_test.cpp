#include "cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace llorch::cli::bench {
namespace {

namespace bj = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Report report() {
  Report out;
  out.model = {.file = "m.gguf", .architecture = "llama", .weight_type = "Q8_0", .kv_dtype = "f16"};
  out.machine = {.processors = 2, .threads = 2, .implementation = "avx2"};
  out.machine.read_bytes_per_s = {20e9, 22e9, 90e9};
  out.machine.multiply_adds_per_s = {1e11};
  out.machine.others_busy = 0.01;
  out.figures = {{.phase = Phase::kPrefill,
                  .context = 0,
                  .tokens = 512,
                  .samples = {{1600, 0.5, 1.0}, {1500, 0.4, 0.97}, {1700, 0.6, {}}}},
                 {.phase = Phase::kDecode,
                  .context = 4096,
                  .batch = 4,
                  .tokens = 32,
                  .step_bytes = 1e9,
                  .samples = {{40, 0.75, {}}, {60, 0.85, {}}}}};
  return out;
}

TEST(BenchReports, TakeMedians) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

TEST(BenchReports, AreATable) {
  const auto rows = table_rows(report().figures);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].size(), table_header().size());
  EXPECT_THAT(rows[0], ElementsAre("prefill", "0", "1", "1600", "1500-1700", "50 %", "3"));
  EXPECT_THAT(rows[1], ElementsAre("decode", "4096", "4", "50.00", "40.00-60.00", "80 %", "2"));
}

TEST(BenchReports, AreJson) {
  const bj::object json = bj::parse(report_json(report())).as_object();
  const bj::object& decode = json.at("figures").at(1).as_object();
  EXPECT_EQ(decode.at("phase").as_string(), "decode");
  EXPECT_EQ(decode.at("batch").to_number<int>(), 4);
  EXPECT_DOUBLE_EQ(decode.at("tokens_per_s").as_double(), 50);
  EXPECT_DOUBLE_EQ(decode.at("share_of_limit").as_double(), 0.8);
  EXPECT_EQ(decode.at("limit").as_string(), "memory_read");
  const bj::object& prefill = json.at("figures").at(0).as_object();
  EXPECT_FALSE(prefill.contains("step_bytes"));
  ASSERT_EQ(prefill.at("samples").as_array().size(), 3U);
  EXPECT_DOUBLE_EQ(prefill.at("samples").at(1).at("tokens_per_s").as_double(), 1500) << "in the order they were taken";
  EXPECT_DOUBLE_EQ(prefill.at("samples").at(1).at("share_of_limit").as_double(), 0.4);
  EXPECT_DOUBLE_EQ(prefill.at("samples").at(1).at("core_share").as_double(), 0.97);
  EXPECT_TRUE(prefill.at("samples").at(2).at("core_share").is_null());
  EXPECT_DOUBLE_EQ(json.at("machine").at("read_bytes_per_s").as_double(), 22e9);
  EXPECT_TRUE(json.at("machine").at("quiet").as_bool());
  EXPECT_FALSE(json.at("interrupted").as_bool());
}

TEST(BenchReports, SayWhatMakesThemSayLess) {
  Report out = report();
  EXPECT_THAT(notes(out), HasSubstr("avx2"));
  EXPECT_THAT(notes(out), HasSubstr("22.0 GB/s"));
  EXPECT_THAT(notes(out), Not(HasSubstr("note:")));
  out.machine.others_busy = 0.5;
  EXPECT_THAT(notes(out), HasSubstr("used 0.50 of its 2"));
  out.machine.others_busy = std::nullopt;
  EXPECT_THAT(notes(out), Not(HasSubstr("quiet"))) << "nobody waited in the minute before";
  out.machine.load_average = 3;
  EXPECT_THAT(notes(out), HasSubstr("load average 3.00"));
  EXPECT_THAT(notes(out), Not(HasSubstr("same cores")));
  out.figures[0].samples[0].core_share = 0.7;
  EXPECT_THAT(notes(out), HasSubstr("beside 1 of 5 runs another program ran on the same cores"));
  out.figures[1].samples = {{40, 1.5, {}}};
  EXPECT_THAT(notes(out), HasSubstr("above 100 %"));
  out.interrupted = true;
  out.contexts_left_out = {4096};
  EXPECT_THAT(notes(out), HasSubstr("interrupted"));
  EXPECT_THAT(notes(out), HasSubstr("context of 4096 was left out"));
}

TEST(BenchReports, OfNothingAreReports) {
  Report out;
  out.interrupted = true;
  EXPECT_TRUE(table_rows(out.figures).empty());
  EXPECT_TRUE(bj::parse(report_json(out)).at("machine").at("read_bytes_per_s").is_null());
  EXPECT_THAT(notes(out), Not(HasSubstr("limits")));
}

}  // namespace
}  // namespace llorch::cli::bench
