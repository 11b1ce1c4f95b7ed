#include "cli/context.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/run_file.h"
#include "cli/server_address.h"
#include "net/http/error_response.h"

namespace llorch::cli {
namespace {

using base::ErrorCode;

TEST(ExitCode, FollowsTheKindOfError) {
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::kConfigInvalid, 2},    {ErrorCode::kInvalidParams, 2},
      {ErrorCode::kUnreachable, 3},      {ErrorCode::kNoGpu, 4},
      {ErrorCode::kInsufficientVram, 4}, {ErrorCode::kForbidden, 4},
      {ErrorCode::kGpuUnavailable, 4},   {ErrorCode::kOutOfDeviceMemory, 4},
      {ErrorCode::kBadToken, 4},         {ErrorCode::kNonLoopbackWithoutToken, 4},
      {ErrorCode::kCancelled, 130},      {ErrorCode::kInternal, 1},
      {ErrorCode::kAlreadyRunning, 1},   {ErrorCode::kModelNotFound, 1}};
  for (const auto& [code, exit] : cases) EXPECT_EQ(exit_code_of({code, "", {}}), exit) << base::info(code).name;
}

// Its record still names it: it was killed a moment ago and is not reaped, or died since the record was read.
TEST(Api, AnOrchestratordThatDoesNotAnswerComesBackWhereTheSupervisorRuns) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / ("llorch-restarting-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory / "run");
  ASSERT_TRUE(base::write_run_file(directory / "run/orchestratord.json", "127.0.0.1:1"));
  const GlobalOptions options{.config_file = "/dev/null", .state_dir = directory.string()};
  const auto message = [&] {
    const auto answer = Api::connect(options).value()->call("GET", "/v2/pools");
    EXPECT_EQ(answer.error().code, ErrorCode::kUnreachable);
    return answer.error().message;
  };
  EXPECT_NE(message().find("start the stack with: llorch up"), std::string::npos) << message();
  ASSERT_TRUE(base::write_run_file(directory / "run/supervisor.json", ""));
  EXPECT_NE(message().find("starts it again"), std::string::npos) << message();
  std::filesystem::remove_all(directory);
}

// What listens at every address is called at loopback: a Host that names a wildcard is refused.
TEST(ServerAddress, OfAListenerAtEveryAddressIsLoopback) {
  const auto directory = std::filesystem::path(testing::TempDir()) / ("llorch-wildcard-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory / "run");
  EXPECT_EQ(server_address({.state_directory = directory, .bind = "[::]:1"}).value(), "http://[::1]:1");
  EXPECT_EQ(server_address({.state_directory = directory, .bind = "0.0.0.0:1", .sends_token = true}).value(),
            "http://127.0.0.1:1");
  ASSERT_TRUE(base::write_run_file(directory / "run/orchestratord.json", "0.0.0.0:2"));
  EXPECT_EQ(server_address({.state_directory = directory, .bind = "10.0.0.5:1"}).value(), "http://127.0.0.1:2");
  std::filesystem::remove_all(directory);
}

TEST(LoadConfig, SetTakesPairs) {
  EXPECT_EQ(load_config({.config_file = "/dev/null", .set = {"log.level"}}).error().code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(load_config({.config_file = "/dev/null", .set = {"log.level=debug"}}).value().log.level, "debug");
}

TEST(ClientToken, TheEnvironmentsGoesBeforeThatOfTheConfiguration) {
  const auto file = std::filesystem::temp_directory_path() / ("llorch_context_test_" + std::to_string(::getpid()));
  std::ofstream(file) << std::string(32, 'o');
  ::chmod(file.c_str(), 0600);
  config::Config config;
  config.auth.token_file = file;
  config.orchestratord.bind = "198.51.100.1:8080";
  config.pool_managerd.orchestrator_url = "http://head.example:9000";
  std::map<std::string, std::string> env{{"LLORCH_API_TOKEN", std::string(32, 't')}};
  const auto getenv = [&](const char* name) { return env.contains(name) ? env[name].c_str() : nullptr; };
  const auto sent = [&](const std::string& url, bool file_is_said = false) {
    return client_token({.config = config, .url = url, .file_is_said = file_is_said, .getenv = getenv}).value();
  };
  for (const char* url : {"", "http://127.0.0.1:8080", "http://elsewhere.example"}) {
    EXPECT_EQ(sent(url).token, std::string(32, 't')) << url;
    EXPECT_FALSE(sent(url).is_withheld) << url;
  }
  env.clear();
  for (const char* url : {"", "http://127.0.0.1:7777", "http://localhost:1", "http://[::1]:1",
                          "http://198.51.100.1:8080/", "http://head.example:9000"}) {
    EXPECT_EQ(sent(url).token, std::string(32, 'o')) << url;
  }
  for (const char* url : {"http://elsewhere.example", "http://198.51.100.1:8081", "http://198.51.100.2:8080", "no url",
                          "http://localhost.elsewhere.example:8080", "http://head.example.elsewhere.example:9000"}) {
    EXPECT_EQ(sent(url).token, "") << url;
    EXPECT_TRUE(sent(url).is_withheld) << url;
  }
  EXPECT_EQ(sent("http://elsewhere.example", true).token, std::string(32, 'o'));
  std::filesystem::remove(file);
}

TEST(Api, AnHttpsUrlIsRefusedAndATunnelNamed) {
  for (const auto& [url, host] :
       {std::pair{"https://llm.example", "llm.example"}, std::pair{"HTTPS://llm.example:8443/x", "llm.example"},
        std::pair{"https://[2001:db8::1]:1", "2001:db8::1"}, std::pair{"https://", "HOST"}}) {
    const auto api = Api::connect({.config_file = "/dev/null", .url = url});
    ASSERT_FALSE(api) << url;
    EXPECT_EQ(api.error().code, ErrorCode::kInvalidParams);
    const std::string& told = api.error().message;
    EXPECT_NE(told.find("speaks no TLS"), std::string::npos) << told;
    EXPECT_NE(told.find(std::string("ssh -L 18080:127.0.0.1:8080 ") + host + ","), std::string::npos)
        << "port 8080 is this machine's orchestratord's: " << told;
    EXPECT_NE(told.find("--url http://127.0.0.1:18080"), std::string::npos) << told;
    EXPECT_NE(told.find(std::string("the token of ") + host + " in the file that LLORCH_API_TOKEN_FILE names"),
              std::string::npos)
        << "this machine's would go through the tunnel: " << told;
    EXPECT_EQ(told.find(std::string("http://") + host), std::string::npos)
        << "the token would go in the clear: " << told;
  }
}

TEST(Api, KnowsTheAnswersOfOtherPrograms) {
  const auto ours = net::http::error_response({ErrorCode::kModelNotFound, "why", {}}, {});
  EXPECT_TRUE(is_orchestratords({.status = ours.status, .body = ours.body}));
  EXPECT_TRUE(is_orchestratords({.status = 200, .body = "{}"}));
  EXPECT_TRUE(is_orchestratords({.status = 204, .body = ""}));
  EXPECT_FALSE(is_orchestratords({.status = 200, .body = "<!DOCTYPE HTML>"}));
  EXPECT_FALSE(is_orchestratords({.status = 404, .body = "<!DOCTYPE HTML>"}));
  EXPECT_FALSE(is_orchestratords({.status = 404, .body = R"({"detail":"Not Found"})"}));
  EXPECT_FALSE(is_orchestratords({.status = 404, .body = R"({"error":{"message":"of /v1","code":null}})"}));
  EXPECT_FALSE(is_orchestratords({.status = 502, .body = ""}));
}

}  // namespace
}  // namespace llorch::cli
