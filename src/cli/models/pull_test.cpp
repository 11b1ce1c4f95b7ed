#include "cli/models/pull.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <thread>

#include "base/descriptor.h"
#include "wire/json.h"

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

std::string shown(PullDisplay::Form form, const std::vector<wire::PullStatus>& steps, std::size_t columns = 0) {
  std::string out;
  PullDisplay display(
      form, "tale", [&](std::string_view text) { out += text; }, [=] { return columns; });
  for (const auto& step : steps) display.show(step);
  display.finish();
  return out;
}

TEST(PullDisplay, ABarOnATerminal) {
  EXPECT_EQ(shown(PullDisplay::Form::kBar, {fetching(50 << 20)}),
            "\r\x1b[Ktale: [############............] 50 %, 50.0 MiB of 100.0 MiB, 10.0 MiB/s, 2 s left\r\x1b[K");
}

// A line as wide as the terminal scrolls instead of being drawn over.
TEST(PullDisplay, ALineIsNarrowerThanItsTerminal) {
  const std::string facts = "50 %, 50.0 MiB of 100.0 MiB, 10.0 MiB/s, 2 s left";
  const auto bar = [](std::size_t columns) { return shown(PullDisplay::Form::kBar, {fetching(50 << 20)}, columns); };
  EXPECT_EQ(bar(83), "\r\x1b[Ktale: [############............] " + facts + "\r\x1b[K");
  EXPECT_EQ(bar(82), "\r\x1b[Ktale: " + facts + "\r\x1b[K");
  EXPECT_EQ(bar(21), "\r\x1b[Ktale: 50 %, 50.0 MiB\r\x1b[K");
  EXPECT_EQ(shown(PullDisplay::Form::kBar, {{.state = wire::PullState::kFinishing}}, 12),
            "\r\x1b[Ktale: verif\r\x1b[K");
  EXPECT_EQ(shown(PullDisplay::Form::kLines, {fetching(50 << 20)}, 21), "tale: " + facts + "\n")
      << "a pipe is no terminal";
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

TEST(CheckPulled, WhatIsNeitherANameNorAReferenceIsToldWhatToBe) {
  for (const char* good : {"smollm2", "qwen3:4b", "tale.gguf", "hf:org/repo", "hf:org/repo:Q4_K_M",
                           "https://host/a/b.gguf", "s3://bucket/key", "oci:registry/a/b:tag", "oci://localhost:5000/a",
                           "pypi:project", "file:/models/a.gguf", "other://x/y"}) {
    EXPECT_TRUE(check_pulled(good)) << good;
  }
  const auto told = [](const std::string& model) {
    const auto checked = check_pulled(model);
    EXPECT_FALSE(checked) << model;
    if (checked) return std::string();
    EXPECT_EQ(checked.error().code, base::ErrorCode::kInvalidParams);
    return checked.error().message;
  };
  EXPECT_NE(told("foo/bar").find("did you mean hf:foo/bar?"), std::string::npos);
  EXPECT_NE(told("foo/bar:Q4_K_M").find("did you mean hf:foo/bar:Q4_K_M?"), std::string::npos);
  EXPECT_NE(told("hf.co/foo/bar").find("did you mean hf:foo/bar?"), std::string::npos);
  EXPECT_NE(told("/nowhere/x.gguf").find("did you mean file:/nowhere/x.gguf?"), std::string::npos);
  const std::string directory = testing::TempDir();  // it exists, and is no model
  for (const std::string& unclear : {std::string("./none.gguf"), std::string("models/none.gguf"), std::string("~/none"),
                                     std::string("a/b/c"), std::string("models/"), std::string("hf.co/models/"),
                                     std::string("hf.co//models"), std::string("/"), directory}) {
    EXPECT_EQ(told(unclear).find("did you mean"), std::string::npos) << told(unclear);
    EXPECT_NE(told(unclear).find("hf:ORG/REPO"), std::string::npos) << told(unclear);
  }
  EXPECT_NE(told("").find("no name"), std::string::npos);
}

// A port at which nobody listens yet.
struct Port {
  Port() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    url = "http://127.0.0.1:" + std::to_string(::ntohs(address.sin_port));
  }
  base::Descriptor taken{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string url;
};

// What was to follow the pull does not, as where the person is a moment earlier.
TEST(WaitForPull, AStopInTheMomentInWhichItEnds) {
  const Port port;
  ASSERT_EQ(::listen(port.taken.get(), 1), 0);
  wire::CatalogModel model;
  model.model_id = "tale";
  std::thread server([&, body = wire::encode(model)] {
    const base::Descriptor client(::accept4(port.taken.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string request;
    char byte = 0;
    while (!request.ends_with("\r\n\r\n") && ::recv(client.get(), &byte, 1, 0) == 1) request += byte;
    std::raise(SIGINT);
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    EXPECT_EQ(::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
  });
  const auto api = Api::connect({.config_file = "/dev/null", .url = port.url});
  ASSERT_TRUE(api);
  model.pull = fetching(1);
  const auto came = wait_for_pull(**api, model, true);
  server.join();
  ASSERT_FALSE(came);
  EXPECT_EQ(came.error().code, base::ErrorCode::kCancelled);
  EXPECT_NE(came.error().message.find("has ended"), std::string::npos) << came.error().message;
}

TEST(WaitForPull, EndsWhereNobodyAnswersAnyMore) {
  const Port port;
  const auto api = Api::connect({.config_file = "/dev/null", .url = port.url});
  ASSERT_TRUE(api);
  wire::CatalogModel model;
  model.model_id = "tale";
  model.pull = fetching(1);
  const auto came = wait_for_pull(**api, model, true, std::chrono::milliseconds(0));
  ASSERT_FALSE(came);
  EXPECT_EQ(came.error().code, base::ErrorCode::kUnreachable);
  EXPECT_NE(came.error().message.find("llorch pull tale"), std::string::npos) << came.error().message;
}

}  // namespace
}  // namespace llorch::cli::models
