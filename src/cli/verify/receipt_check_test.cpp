#include "cli/verify/receipt_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "wire/json.h"

namespace llorch::cli::verify {
namespace {

using testing::HasSubstr;

std::string sha(std::string_view text) { return base::to_hex(base::sha256(text)); }

wire::SubmitRequest request() { return {.prompt = {{.text = "Once"}}, .temperature = 0.5, .stop = {"end"}}; }

wire::Receipt receipt() {
  return {.model_digest = "sha256:" + sha("model"),
          .engine_build = "0.1.0+abc",
          .numerics = "cpu-1",
          .device_class = "cpu-x86",
          .sampler = "s1",
          .kv_dtype = "f16",
          .seed = 7,
          .prompt_sha256 = sha("Once"),
          .output_sha256 = sha(" upon"),
          .tokens_out = 3,
          .parameters_sha256 = wire::parameters_sha256(0.5, {}, {"end"})};
}

Claim claim() { return {.receipt = receipt(), .stop_reason = wire::StopReason::kEos, .model = "demo"}; }
wire::EndEvent end() { return {.tokens_out = 3, .stop_reason = wire::StopReason::kEos, .receipt = receipt()}; }

TEST(ParseClaim, TakesEveryFormAReceiptComesIn) {
  const std::string bare = wire::encode(receipt());
  const std::string ended = wire::encode(end());
  EXPECT_EQ(parse_claim(bare).value().receipt, receipt());
  EXPECT_EQ(parse_claim(ended).value().stop_reason, wire::StopReason::kEos);
  const Claim of_run = parse_claim(R"({"job_id":"j","text":"t","end":)" + ended + "}").value();
  EXPECT_EQ(of_run.receipt, receipt());
  EXPECT_EQ(of_run.stop_reason, wire::StopReason::kEos);
  const wire::JobView job{.job_id = "j",
                          .status = wire::JobStatus::kCompleted,
                          .model = "demo",
                          .stop_reason = wire::StopReason::kStop,
                          .receipt = receipt()};
  const Claim of_job = parse_claim(wire::encode(job)).value();
  EXPECT_EQ(of_job.model, "demo");
  EXPECT_EQ(of_job.stop_reason, wire::StopReason::kStop);
}

TEST(ParseClaim, OlderReceiptsSayNothingOfParameters) {
  wire::Receipt older = receipt();
  older.parameters_sha256.reset();
  EXPECT_EQ(parse_claim(wire::encode(older)).value().receipt, older);
}

TEST(ParseClaim, HostileReceiptsAreRefusedWithoutBeingQuoted) {
  wire::JobView running{.job_id = "j", .status = wire::JobStatus::kRunning};
  EXPECT_THAT(parse_claim(wire::encode(running)).error().message, HasSubstr("has no receipt"));
  std::vector<std::string> bad{
      "", "{", "[]", "7", "{}", R"({"receipt":7})", R"({"end":{"receipt":[]}})", std::string(100'000, '[')};
  const auto with = [&](auto change) {
    wire::Receipt r = receipt();
    change(r);
    bad.push_back(wire::encode(r));
  };
  with([](auto& r) { r.model_digest = sha("model"); });
  with([](auto& r) { r.model_digest = "sha256:\x1b[31m"; });
  with([](auto& r) { r.prompt_sha256 = ""; });
  with([](auto& r) { r.output_sha256 = std::string(64, 'G'); });
  with([](auto& r) { r.parameters_sha256 = "\x1b[31m"; });
  with([](auto& r) { r.engine_build = "\x1b[31mred"; });
  with([](auto& r) { r.device_class = std::string(1 << 16, 'x'); });
  with([](auto& r) { r.kv_dtype = ""; });
  with([](auto& r) { r.tokens_out = 0; });
  with([](auto& r) { r.tokens_out = std::int64_t{1} << 60; });
  for (const std::string& text : bad) {
    const auto parsed = parse_claim(text);
    ASSERT_FALSE(parsed) << text.substr(0, 200);
    EXPECT_EQ(parsed.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_LT(parsed.error().message.size(), 200u);
    EXPECT_EQ(parsed.error().message.find('\x1b'), std::string::npos);
  }
}

TEST(CompareRequest, SaysWhichInputIsAnother) {
  EXPECT_EQ(compare_request(claim(), request()).verdict, Verdict::kMatch);
  wire::SubmitRequest other = request();
  other.prompt = {.text = "Once\n"};
  EXPECT_THAT(compare_request(claim(), other).explanation, HasSubstr("without its last line break"));
  other.prompt = {.text = "Twice"};
  other.temperature = 0.6;
  const Finding both = compare_request(claim(), other);
  EXPECT_EQ(both.verdict, Verdict::kInputsDiffer);
  ASSERT_EQ(both.differences.size(), 2u);
  EXPECT_EQ(both.differences[0].field, "prompt_sha256");
  EXPECT_EQ(both.differences[1].field, "parameters_sha256");
  // Nothing can be said of a conversation's text here, nor of parameters an older receipt does not have.
  Claim older = claim();
  older.receipt.parameters_sha256.reset();
  other.suffix = "end";  // the hash is of tokens then
  EXPECT_EQ(compare_request(older, other).verdict, Verdict::kMatch);
  other.suffix.reset();
  other.prompt.reset();
  EXPECT_EQ(compare_request(older, other).verdict, Verdict::kMatch);
}

// SYS-2.3.2, OC-CORE-1031: what is promised nothing between is never called a mismatch.
TEST(CompareResult, InputsThenComparabilityThenOutput) {
  EXPECT_EQ(compare_result(claim(), end()).verdict, Verdict::kMatch);
  const auto verdict_with = [](auto change) {
    wire::EndEvent other = end();
    other.receipt->output_sha256 = sha("else");  // every other difference outranks this one
    change(other);
    return compare_result(claim(), other);
  };
  EXPECT_EQ(verdict_with([](auto&) {}).verdict, Verdict::kOutputDiffers);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->model_digest = "x"; }).verdict, Verdict::kInputsDiffer);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->prompt_sha256 = "x"; }).verdict, Verdict::kInputsDiffer);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->parameters_sha256 = "x"; }).verdict, Verdict::kInputsDiffer);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->seed = 8; }).verdict, Verdict::kInputsDiffer);
  const Finding other_build = verdict_with([](auto& e) { e.receipt->engine_build = "x"; });
  EXPECT_EQ(other_build.verdict, Verdict::kNotComparable);
  EXPECT_THAT(other_build.explanation, HasSubstr("VERSION_MISMATCH"));
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->numerics = "x"; }).verdict, Verdict::kNotComparable);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->sampler = "x"; }).verdict, Verdict::kNotComparable);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->kv_dtype = "x"; }).verdict, Verdict::kNotComparable);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt->device_class = "x"; }).verdict, Verdict::kNotComparable);
  EXPECT_EQ(verdict_with([](auto& e) { e.receipt.reset(); }).verdict, Verdict::kNotComparable);
}

TEST(CompareResult, TheWayItEndedCountsWhereTheRepetitionCanTell) {
  wire::EndEvent other = end();
  other.stop_reason = wire::StopReason::kMaxTokens;
  EXPECT_EQ(compare_result(claim(), other).verdict, Verdict::kOutputDiffers) << "the same text, but no end of it";
  Claim full_context = claim();
  full_context.stop_reason = wire::StopReason::kContext;
  EXPECT_EQ(compare_result(full_context, other).verdict, Verdict::kMatch) << "repeated with exactly as many tokens";
}

TEST(CompareWorker, IsTheSameQuestionBeforeTheRun) {
  wire::WorkerInfo worker{.model_digest = receipt().model_digest,
                          .engine_build = "0.1.0+abc",
                          .numerics = "cpu-1",
                          .device_class = "cpu-x86",
                          .sampler = "s1",
                          .kv_dtype = "f16"};
  EXPECT_EQ(compare_worker(claim(), worker).verdict, Verdict::kMatch);
  worker.engine_build = "0.1.1+abd";
  EXPECT_EQ(compare_worker(claim(), worker).verdict, Verdict::kNotComparable);
  worker.model_digest = "sha256:x";
  EXPECT_EQ(compare_worker(claim(), worker).verdict, Verdict::kInputsDiffer);
}

TEST(Verdicts, HaveExitCodes) {
  EXPECT_EQ(exit_code_of(Verdict::kMatch), 0);
  EXPECT_EQ(exit_code_of(Verdict::kOutputDiffers), 1);
  EXPECT_EQ(exit_code_of(Verdict::kInputsDiffer), 2);
  EXPECT_EQ(exit_code_of(Verdict::kNotComparable), 4);
}

}  // namespace
}  // namespace llorch::cli::verify
