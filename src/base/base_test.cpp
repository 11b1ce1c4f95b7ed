#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/atomic_file.h"
#include "base/base64.h"
#include "base/build_id.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/error_detail.h"
#include "base/file.h"
#include "base/find_text.h"
#include "base/id.h"
#include "base/json_text.h"
#include "base/keyed_hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/state_directory.h"
#include "base/utf8.h"
#include "base/version.h"

namespace llorch::base {
namespace {

// SYS-5.5.1: codes are upper-snake, unique, stable and carry a sensible HTTP status.
TEST(Error, HasADetailOfThatKeyAndText) {
  const Error error =
      Error{ErrorCode::kConflict, "", {}}.with("n", std::int64_t{1}).with("reason", std::string("FULL"));
  EXPECT_TRUE(has_detail(error, "reason", "FULL"));
  EXPECT_FALSE(has_detail(error, "reason", "FUL"));
  EXPECT_FALSE(has_detail(error, "n", "FULL")) << "a number";
  EXPECT_EQ(number_detail(error, "n"), 1);
  EXPECT_EQ(number_detail(error, "reason"), std::nullopt) << "a text";
  EXPECT_FALSE(has_detail(error, "why", "FULL"));
}

TEST(ErrorTable, RowsAreUniqueAndWellFormed) {
  std::set<std::string_view> names;
  std::set<int> numbers;
  for (const ErrorInfo& row : kErrorTable) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(numbers.insert(static_cast<int>(row.code)).second) << row.name;
    EXPECT_GE(row.http_status, 400) << row.name;
    EXPECT_LT(row.http_status, 600) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), std::string_view::npos);
    EXPECT_EQ(error_code_from_name(row.name), row.code);
  }
  EXPECT_EQ(error_code_from_name("NO_SUCH_CODE"), std::nullopt);
}

Result<int> half(int n) {
  if (n % 2 != 0) return fail(ErrorCode::kInvalidParams, "odd");
  return n / 2;
}
Result<int> quarter(int n) { return TRY(half(TRY(half(n)))); }

TEST(Result, TryPropagatesTheFirstError) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().code, ErrorCode::kInvalidParams);
}

// Vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// FIPS 180-2 appendix B.
TEST(Sha256, KnownAnswersAndRunningDigest) {
  EXPECT_EQ(to_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 running;
  running.update("a");
  EXPECT_EQ(to_hex(running.digest()), to_hex(sha256("a")));
  running.update("bc");
  EXPECT_EQ(to_hex(running.digest()), to_hex(sha256("abc")));
}

TEST(JsonText, EscapesWhatJsonForbidsAndNothingElse) {
  std::string out = "x";
  append_json_string(out, std::string_view("a\"b\\c/\b\f\n\r\t\0\x1f\x7f\xC3\xA9", 16));
  EXPECT_EQ(out, "x\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xC3\xA9\"");
}

TEST(FindText, FindsWhatFindFinds) {
  for (const std::string_view text : {"", "a", "abcabcab", "aaaa"}) {
    for (const std::string_view wanted : {"", "a", "ab", "cab", "aaa", "aaaab", "x"}) {
      for (std::size_t from = 0; from <= text.size() + 1; ++from)
        EXPECT_EQ(find_text(text, wanted, from), text.find(wanted, from)) << text << ' ' << wanted << ' ' << from;
    }
  }
}

TEST(Utf8, EveryScalarValueRoundTripsAndNothingElseIsValid) {
  for (char32_t c = 1; c <= 0x10FFFF; ++c) {
    std::string s;
    if (c < 0x80) {
      s = {static_cast<char>(c)};
    } else if (c < 0x800) {
      s = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      s = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
           static_cast<char>(0x80 | (c & 63))};
    } else {
      s = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
           static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(is_valid_utf8(s), !surrogate) << static_cast<unsigned>(c);
    if (!surrogate) {
      ASSERT_EQ(next_code_point(s).code_point, c);
    }
    for (std::size_t cut = 1; !surrogate && cut < s.size(); ++cut) {
      ASSERT_EQ(next_code_point(s.substr(0, cut)).status, Utf8Status::kIncomplete);
    }
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "a\xC3"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
}

TEST(Id, ValidationAndUuid) {
  EXPECT_TRUE(is_valid_identifier("worker-1_A"));
  EXPECT_FALSE(is_valid_identifier(""));
  EXPECT_FALSE(is_valid_identifier("a/b"));
  EXPECT_FALSE(is_valid_identifier(std::string(257, 'a')));
  SeededEntropy a(1), b(1), c(2);
  const std::string id = uuid_v4(a);
  EXPECT_TRUE(is_uuid(id));
  EXPECT_EQ(id[14], '4');
  EXPECT_EQ(id, uuid_v4(b));
  EXPECT_NE(id, uuid_v4(c));
}

TEST(Clock, Rfc3339) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(1'767'323'045'678), "2026-01-02T03:04:05.678Z");
}

// NARR-4002, NARR-4005, NARR-3001..3008, ORCH-3302, OC-CTRL-2041: no secret reaches a log line.
TEST(Log, RedactsSecretsAndControlCharacters) {
  EXPECT_EQ(redact("Authorization: Bearer abc.DEF-123 end"), "Authorization: Bearer [REDACTED] end");
  EXPECT_EQ(redact("x?api_key=s3cr3t&y=1"), "x?api_key=[REDACTED]&y=1");
  EXPECT_EQ(redact("jwt eyJhbGciOi.eyJzdWIi.sig next"), "jwt [REDACTED] next");
  EXPECT_EQ(redact("http://user:pw@host/path"), "http://[REDACTED]@host/path");
  EXPECT_EQ(redact("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----"), "[REDACTED]");
  EXPECT_EQ(redact("a\r\nb\tc\xE2\x80\x8B"), "a  b c");
  EXPECT_EQ(redact("plain text stays"), "plain text stays");
  EXPECT_EQ(redact("token:ba7816 password=ba7816 token:ba78160"), "token:ba7816 password=[REDACTED] token:[REDACTED]");
  const std::pair<const char*, const char*> values[] = {
      {"password: hunter2", "password: [REDACTED]"},
      {"password=p@ss!word, next", "password=[REDACTED], next"},
      {R"({"api_key":"abc","n":1})", R"({"api_key":"[REDACTED]","n":1})"},
      {R"({"secret" : "two words"})", R"({"secret" : "[REDACTED]"})"},
      {R"({\"password\":\"abc\"})", R"({\"password\":\"[REDACTED]\"})"},
      {R"({"secret":"a\"b"})", R"({"secret":"[REDACTED]"})"},
      {"token = x", "token = [REDACTED]"},
      {"'token': 'y' z", "'token': '[REDACTED]' z"},
      {"Authorization: Basic abc== end", "Authorization: Basic [REDACTED] end"},
      {"basic dXNlcjpwYXNz", "basic [REDACTED]"},
      {"a basic checklist, tokens: 7, a token was sent", "a basic checklist, tokens: 7, a token was sent"},
      {"secret", "secret"},
      {"secret=", "secret="},
      {"password:\"open", "password:\"[REDACTED]"},
  };
  for (const auto& [text, expected] : values) EXPECT_EQ(redact(text), expected);
}

TEST(Log, NumbersWithoutAJsonSpellingAreNull) {
  std::string line;
  capture_log_lines([&](std::string_view l) { line = l; });
  const double zero = 0;
  log_event(LogLevel::kInfo, "test.event", {}, "", {{"a", 1 / zero}, {"b", zero / zero}, {"c", 0.5}});
  capture_log_lines({});
  EXPECT_TRUE(line.ends_with(R"("a":null,"b":null,"c":0.5})")) << line;
}

// NARR-6001, ORCH-3306, SYS-10.2.1, SYS-10.2.2: one JSON object per line with component, timestamp, level, correlation id and event code.
TEST(Log, LineHasTheRequiredFields) {
  std::string line;
  capture_log_lines([&](std::string_view l) { line = l; });
  log_event(LogLevel::kInfo, "test.event", CorrelationId("c-1"), "A \"quoted\" sentence.", {{"n", 3}, {"ok", true}});
  capture_log_lines({});
  for (const char* part :
       {"\"ts\":\"", "\"level\":\"info\"", "\"component\":", "\"event\":\"test.event\"", "\"correlation_id\":\"c-1\"",
        "\"human\":\"A \\\"quoted\\\" sentence.\"", "\"n\":3", "\"ok\":true"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
}

// NARR-7001, NARR-7002, NARR-7003, NARR-7004, NARR-7005: a line says by itself when, by whom, in which version and in which trace
// it was logged; what the caller says of these stands as said, and once.
TEST(Log, ALineSaysWhereItComesFromUnlessItsCallerDoes) {
  CorrelationId traced("c");
  traced.trace = std::make_shared<const TraceContext>(TraceContext{.trace_id = "0af7651916cd43dd8448eb211c80319c"});
  const LogRecord record{
      .unix_ms = 0, .event = "test.event", .correlation_id = traced, .human = {}, .fields = {{"n", 3}}};
  const std::string version(kVersion);
  EXPECT_EQ(
      format_log_line("pool-managerd", record),
      R"({"v":1,"ts":"1970-01-01T00:00:00.000Z","level":"info","component":"pool-managerd","emitted_by":"pool-managerd@)" +
          version +
          R"(","event":"test.event","correlation_id":"c","trace_id":"0af7651916cd43dd8448eb211c80319c","human":"","n":3})");
  LogRecord said = record;
  said.fields = {
      {"ts", "then"}, {"component", "llama-server"}, {"emitted_by", "llama-server@b1"}, {"trace_id", "other"}};
  EXPECT_EQ(format_log_line("pool-managerd", said),
            R"({"v":1,"level":"info","event":"test.event","correlation_id":"c","human":"","ts":"then",)"
            R"("component":"llama-server","emitted_by":"llama-server@b1","trace_id":"other"})");
}

// NARR-1002: seven levels to choose from; a line has one of five, and says beside it that its process ends.
TEST(Log, FatalAndMute) {
  std::vector<std::string> lines;
  const auto logged_at = [&](std::string_view name) {
    lines.clear();
    capture_log_lines([&](std::string_view line) { lines.emplace_back(line); },
                      parse_log_level(name, LogLevel::kTrace));
    log_event(LogLevel::kError, "an.error", {}, "");
    log_event(LogLevel::kFatal, "the.end", {}, "");
    capture_log_lines({});
    return lines.size();
  };
  EXPECT_EQ(logged_at("error"), 2u);
  EXPECT_EQ(lines[0].find("fatal"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find(R"("level":"error","fatal":true,)"), std::string::npos) << lines[1];
  EXPECT_EQ(logged_at("fatal"), 1u);
  EXPECT_EQ(logged_at("mute"), 0u);
  EXPECT_NE(format_log_line("", {.level = LogLevel::kFatal}, LogFormat::kText).find(" fatal "), std::string::npos);
}

TEST(LogDeathTest, AnUncaughtExceptionIsNamedWithoutItsWords) {
  const auto throws = [] {
    init_logging({.component = "test"});
    std::thread([] { throw std::length_error("what a client sent"); }).join();
  };
  EXPECT_DEATH(throws(),
               testing::AllOf(testing::HasSubstr(R"("fatal":true)"), testing::HasSubstr(R"("exception.uncaught")"),
                              testing::HasSubstr(R"("type":"std::length_error")"),
                              testing::Not(testing::HasSubstr("what a client sent"))));
}

TEST(File, AtomicWriteReplacesAndErrorsNameTheFile) {
  const auto directory = std::filesystem::temp_directory_path() / ("llorch_base_test_" + std::to_string(::getpid()));
  ASSERT_TRUE(ensure_private_directory(directory).has_value());
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms::owner_all);
  const auto path = directory / "f";
  ASSERT_TRUE(write_file_atomic(path, "one").has_value());
  ASSERT_TRUE(write_file_atomic(path, "two").has_value());
  EXPECT_EQ(read_file(path, 100).value(), "two");
  EXPECT_EQ(read_file(path, 2).error().code, ErrorCode::kIoError);
  // A write that fails at its last step leaves nothing behind.
  std::filesystem::create_directories(directory / "in_the_way" / "child");
  EXPECT_FALSE(write_file_atomic(directory / "in_the_way", "x").has_value());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 2);
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), 3u);
  EXPECT_NE(MappedFile::open(directory / "none").error().message.find("none"), std::string::npos);
  std::filesystem::remove_all(directory);
}

TEST(File, NothingThatSomebodyPutThereIsWrittenThrough) {
  namespace fs = std::filesystem;
  char name[] = "/tmp/llorch-planted-XXXXXX";
  const fs::path directory = ::mkdtemp(name);
  const auto path = directory / "out";
  const auto planted = fs::path(path.string() + fmt::format(".{}.0.tmp", ::getpid()));
  const auto victim = directory / "victim";
  std::ofstream(victim) << "kept";
  fs::create_symlink(victim, planted);
  ASSERT_TRUE(write_file_atomic(path, "ours"));
  EXPECT_EQ(read_file(victim, 100).value(), "kept");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path)));
  EXPECT_EQ(read_file(path, 100).value(), "ours");
  fs::create_hard_link(victim, planted);  // whose owner and mode stay
  ASSERT_TRUE(write_file_atomic(path, "ours again"));
  EXPECT_EQ(read_file(victim, 100).value(), "kept");
  EXPECT_EQ(read_file(path, 100).value(), "ours again");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_directory(planted);  // as in a directory where nobody removes what is another's
  ASSERT_TRUE(write_file_atomic(path, "beside it"));
  EXPECT_EQ(read_file(path, 100).value(), "beside it");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 3);
  fs::remove_all(directory);
}

TEST(File, AppearsWholeAndReplacesOnlyWhereThatIsSaid) {
  char name[] = "/tmp/llorch-atomic-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(name);
  const auto path = directory / "out";
  const auto put = [&](std::string_view content, bool replaces) -> Result<> {
    auto file = TRY(AtomicFile::create(path));
    TRY(file.append(std::as_bytes(std::span(content))));
    return file.commit(replaces);
  };
  ASSERT_TRUE(put("first", false));
  EXPECT_EQ(put("second", false).error().code, ErrorCode::kConflict);
  EXPECT_EQ(read_file(path, 100).value(), "first");
  ASSERT_TRUE(put("second", true));
  EXPECT_EQ(read_file(path, 100).value(), "second");
  {
    const auto other = AtomicFile::create(path).value();  // of this process, too
    EXPECT_TRUE(put("third", true));
  }
  for (const auto& make : {+[](const char* at) { return ::mkfifo(at, 0600); },
                           +[](const char* at) { return ::symlink("/nowhere", at); }}) {
    std::filesystem::remove(path);
    ASSERT_EQ(make(path.c_str()), 0);
    EXPECT_EQ(put("fourth", true).error().code, ErrorCode::kConflict);
    EXPECT_FALSE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1);
  std::filesystem::remove_all(directory);
}

TEST(File, AnExistingDirectoryIsTightenedOnlyWhileItIsEmpty) {
  using std::filesystem::perms;
  const auto directory =
      std::filesystem::temp_directory_path() / ("llorch_base_test_dir_" + std::to_string(::getpid()));
  std::filesystem::create_directory(directory);
  const perms wide = perms::owner_all | perms::group_read | perms::others_read;
  std::filesystem::permissions(directory, wide);
  ASSERT_TRUE(ensure_private_directory(directory).has_value());
  EXPECT_EQ(std::filesystem::status(directory).permissions(), perms::owner_all);
  ASSERT_TRUE(write_file_atomic(directory / "f", "x").has_value());
  std::filesystem::permissions(directory, wide);
  ASSERT_TRUE(ensure_private_directory(directory).has_value());
  EXPECT_EQ(std::filesystem::status(directory).permissions(), wide);
  std::filesystem::remove_all(directory);
}

TEST(StateDirectory, IsNobodyElses) {
  using std::filesystem::perms;
  const auto directory =
      std::filesystem::temp_directory_path() / ("llorch_base_test_state_" + std::to_string(::getpid()));
  ASSERT_TRUE(ensure_state_directory(directory).has_value());
  ASSERT_TRUE(write_file_atomic(directory / "f", "x").has_value());
  std::filesystem::permissions(directory, perms::owner_all | perms::group_read | perms::others_read);
  EXPECT_TRUE(ensure_state_directory(directory).has_value());
  std::filesystem::permissions(directory, perms::all);
  EXPECT_TRUE(ensure_state_directory(directory).has_value()) << "a volume";
  std::filesystem::permissions(directory, perms::owner_all | perms::group_exec | perms::others_exec);
  if (::geteuid() == 0) {
    const uid_t other = 54321, user = 54322;
    // What `user` is told: 0 it may use it, 1 FORBIDDEN, 2 something else.
    const auto told = [&] {
      const pid_t child = ::fork();
      if (child == 0) {
        if (::setresuid(user, user, user) != 0) ::_exit(3);
        const auto made = ensure_state_directory(directory);
        ::_exit(made ? 0 : made.error().code == ErrorCode::kForbidden ? 1 : 2);
      }
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    EXPECT_EQ(told(), 0) << "root's";
    ASSERT_EQ(::chown(directory.c_str(), other, other), 0);
    EXPECT_EQ(told(), 1);
    EXPECT_TRUE(ensure_state_directory(directory).has_value()) << "root, of a service user";
    ASSERT_EQ(::chown(directory.c_str(), user, user), 0);
    EXPECT_EQ(told(), 0);
  }
  std::filesystem::remove_all(directory);
}

TEST(BuildId, NamesTheBinary) {
  const std::string id = build_id();
  EXPECT_EQ(id.find("unknown"), std::string::npos) << id;
  EXPECT_EQ(id.size() - id.find('+'), 13u) << id;
}

TEST(Process, StartTicksIdentifyThisProcess) {
  EXPECT_GT(process_start_ticks(::getpid()).value(), 0u);
  EXPECT_FALSE(process_start_ticks(0x3fffffff).has_value());
}

TEST(Process, AnEndedChildHasNoStartTicksEvenBeforeItIsReaped) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process_start_ticks(child).has_value());
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// RFC 4648, section 10; then that a text which encode() does not write is none.
TEST(Base64, BothWays) {
  const std::pair<std::string_view, std::string_view> known[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i * 7);
  for (std::size_t length = 0; length < all.size(); ++length) {
    const std::string bytes = all.substr(0, length);
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
  }
  for (const std::string_view text :
       {"Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Z-==", "====", "=Zg=", "Zg==Zg=="})
    EXPECT_EQ(base64_decode(text), std::nullopt) << text;
}

TEST(JsonText, AStringEndsBehindTheQuoteThatNothingEscapes) {
  EXPECT_EQ(json_string_end(R"("a")", 0), 3U);
  EXPECT_EQ(json_string_end(R"(["\\"])", 1), 5U);
  EXPECT_EQ(json_string_end(R"("\"x", 1)", 0), 5U);
  EXPECT_EQ(json_string_end(R"("\")", 0), 3U) << "no end";
  EXPECT_EQ(json_string_end("\"", 0), 1U);
}

TEST(JsonText, AnObjectEndsBehindItsBrace) {
  EXPECT_EQ(json_object_end(R"({} {})"), 2U);
  EXPECT_EQ(json_object_end(R"({"}": [{"a": "]"}]}x)"), 19U);
  EXPECT_EQ(json_object_end(R"({"a": {)"), 7U) << "no end";
}

std::string object_of(std::size_t count) {
  std::string out = "{";
  for (std::size_t i = 0; i < count; ++i) out += std::string(i == 0 ? "" : ",") + "\"" + std::to_string(i) + "\":1";
  return out + "}";
}

TEST(JsonText, EachObjectTakesHalfTheSquareOfItsMembers) {
  EXPECT_EQ(object_steps(object_of(1000)), 500'000U);
  EXPECT_EQ(object_steps(R"({"a":[)" + object_of(1000) + "]}"), 500'000U) << "at any depth";
  std::string many = "[";
  for (int i = 0; i < 200; ++i) many += object_of(1000) + ",";
  EXPECT_EQ(object_steps(many + "1]"), 200 * 500'000U) << "together";
  EXPECT_EQ(object_steps("{\"a\":\"" + std::string(30'000, ':') + "\"}"), 0U) << "in a string";
}

TEST(JsonText, AnyTextMayBeAskedForItsSteps) {
  for (const char* text : {"", "\"", "{", "]]]", ":::", "{\"a", "}{", "\\\""})
    EXPECT_EQ(object_steps(text), 0U) << text;
  EXPECT_EQ(object_steps(std::string(1 << 20, '[')), 0U) << "no parser goes so deep";
}

// With no key, as CPython hashes bytes at PYTHONHASHSEED=0; with one, as SipHash's authors number their bytes.
TEST(KeyedHash, IsSipHash) {
  EXPECT_EQ(siphash13({}, "a"), 0x407448d2b89b1813U);
  EXPECT_EQ(siphash13({}, "abcdefgh"), 0x3f7b849c0b8e35eaU);
  EXPECT_EQ(siphash13({}, "the quick brown fox"), 0x5a17575ad3449cbaU);
  EXPECT_EQ(siphash13({0x0706050403020100, 0x0f0e0d0c0b0a0908}, ""), 0xabac0158050fc4dcU);
}

TEST(KeyedHash, WhatCollidesInTheLibrarysHashDoesNotHere) {
  const std::string_view one(
      "8xTz3jJA\x14!\x14\x19"
      "A\x18"
      "4\x03",
      16),
      other("-YbX5vVgi\xda\x80=X8x\n", 16);
  EXPECT_EQ(std::hash<std::string_view>{}(one), std::hash<std::string_view>{}(other));
  EXPECT_NE(KeyedHash{}(one), KeyedHash{}(other));
  EXPECT_EQ(KeyedHash{}(one), KeyedHash{}(std::string(one)));
  EXPECT_NE(KeyedHash{}(std::uint64_t{1}), KeyedHash{}(std::uint64_t{2}));
}

}  // namespace
}  // namespace llorch::base
