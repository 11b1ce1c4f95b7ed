// The OpenAPI files and the router say the same.
#include "orchestratord/http/routes.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error_code.h"

namespace llorch::orchestratord::http {
namespace {

YAML::Node load(const std::string& name) {
  return YAML::LoadFile(std::string(LLORCH_SOURCE_DIR) + "/contracts/openapi/" + name);
}
// One for /v2, one for the router of /v1, and one for each gateway.
const std::vector<YAML::Node>& documents() {
  static const std::vector<YAML::Node> nodes{load("orchestratord.yaml"), load("anthropic.yaml"),
                                             load("llamacpp.yaml"),      load("ollama.yaml"),
                                             load("openai.yaml"),        load("router_v1.yaml")};
  return nodes;
}
// What the rest of a "#/..." from `begin` on points to in `node`; undefined: to nothing.
YAML::Node at_pointer(const YAML::Node& node, const std::string& pointer, std::size_t begin = 2) {
  if (begin >= pointer.size()) return node;
  const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
  const YAML::Node next = node[pointer.substr(begin, end - begin)];
  return next.IsDefined() ? at_pointer(next, pointer, end + 1) : next;
}

bool is_method(const std::string& key) {
  return key == "get" || key == "post" || key == "delete" || key == "put" || key == "patch";
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

struct Operation {
  std::string name;
  YAML::Node node;
  YAML::Node document;
};
std::vector<Operation> operations() {
  std::vector<Operation> out;
  for (const YAML::Node& document : documents()) {
    for (const auto& path : document["paths"]) {
      for (const auto& entry : path.second) {
        const auto method = entry.first.as<std::string>();
        if (!is_method(method)) continue;
        out.push_back({upper(method) + " " + path.first.as<std::string>(), entry.second, document});
      }
    }
  }
  return out;
}

std::vector<Api::Route> all_routes(Api& api) {
  std::vector<Api::Route> routes = api.routes();
  for (Api::Gateway& gateway : api.gateways({})) std::ranges::move(gateway.routes, std::back_inserter(routes));
  return routes;
}
std::string name_of(const Api::Route& route) { return std::string(route.method) + " " + std::string(route.pattern); }

// SYS-12.3: every served route is described, and nothing else is.
TEST(OpenApi, DescribesExactlyWhatIsServed) {
  const config::Config config;
  Context context;
  context.config = &config;
  Api api(context);
  std::set<std::string> served, described;
  for (const Api::Route& route : all_routes(api)) EXPECT_TRUE(served.insert(name_of(route)).second) << route.pattern;
  for (const Operation& operation : operations()) described.insert(operation.name);
  EXPECT_EQ(served, described);
}

// The router of /v1 is an API of ours.
TEST(Gateways, ClientsOfOtherApisMaySendAnyTokenWhereNoneIsConfigured) {
  const config::Config config;
  Context context;
  context.config = &config;
  Api api(context);
  const std::vector<Api::Gateway> gateways = api.gateways({});
  std::size_t paths = 0;
  for (std::size_t i = 0; i < gateways.size(); ++i) {
    for (const net::http::Gateway& path : gateways[i].paths) {
      EXPECT_EQ(path.always_sends_token, i > 0) << path.prefix;
      ++paths;
    }
  }
  EXPECT_GT(paths, 15u);
}

// ORCH-3096, OC-CTRL-2061: the version told by /v2/meta is the document's.
TEST(OpenApi, HasTheVersionOfTheApi) {
  for (const YAML::Node& document : documents()) {
    EXPECT_EQ(document["openapi"].as<std::string>().substr(0, 4), "3.1.");
    EXPECT_EQ(document["info"]["version"].as<std::string>(), kApiVersion);
  }
}

TEST(OpenApi, OperationIdsAreUniqueAndParametersComplete) {
  std::set<std::string> ids;
  for (const Operation& operation : operations()) {
    const auto id = operation.node["operationId"].as<std::string>("");
    EXPECT_FALSE(id.empty()) << operation.name;
    EXPECT_TRUE(ids.insert(id).second) << id;
    if (operation.name.find('{') != std::string::npos) {
      EXPECT_TRUE(operation.node["parameters"]) << operation.name << " does not declare its path parameter";
    }
    EXPECT_TRUE(operation.node["responses"]) << operation.name;
  }
}

// OC-CTRL-2067: data-plane operations carry examples.
TEST(OpenApi, DataPlaneOperationsCarryExamples) {
  for (const Operation& operation : operations()) {
    const auto about = [&](std::string_view path) { return operation.name.find(path) != std::string::npos; };
    if (!about("/v2/tasks") && !about("/v2/sessions") && !about("/v1/")) continue;
    EXPECT_TRUE(operation.node["x-examples"] && operation.node["x-examples"].size() > 0) << operation.name;
  }
}

// A response of an operation, where it stands.
YAML::Node described(const Operation& operation, const YAML::Node& response) {
  const YAML::Node reference = response["$ref"];
  return reference ? at_pointer(operation.document, reference.as<std::string>()) : response;
}

// SYS-5.5.1: every error code named for an operation is in the table, under the status it is named for.
TEST(OpenApi, ErrorCodesAreThoseOfTheTable) {
  int codes = 0;
  for (const Operation& operation : operations()) {
    for (const auto& response : operation.node["responses"]) {
      for (const auto& code : described(operation, response.second)["x-error-codes"]) {
        const auto known = base::error_code_from_name(code.as<std::string>());
        ASSERT_TRUE(known) << code.as<std::string>();
        EXPECT_EQ(std::to_string(base::info(*known).http_status), response.first.as<std::string>()) << operation.name;
        ++codes;
      }
    }
  }
  EXPECT_GT(codes, 20);
}

using Codes = std::set<std::string>;
// What each operation says that it refuses with, by its name.
const std::map<std::string, Codes>& codes_by_operation() {
  static const std::map<std::string, Codes> codes = [] {
    std::map<std::string, Codes> out;
    for (const Operation& operation : operations()) {
      Codes& named = out[operation.name];
      for (const auto& response : operation.node["responses"]) {
        for (const auto& code : described(operation, response.second)["x-error-codes"])
          named.insert(code.as<std::string>());
      }
    }
    return out;
  }();
  return codes;
}
void expect_named(const std::string& operation, std::span<const std::string_view> codes) {
  const auto named = codes_by_operation().find(operation);
  ASSERT_NE(named, codes_by_operation().end()) << operation;
  for (const std::string_view code : codes) {
    EXPECT_TRUE(named->second.contains(std::string(code))) << operation << " does not say that it answers " << code;
  }
}

// A service that refuses on a request's head what it can, for one reason at a time.
struct Refusing {
  base::ManualClock clock;
  Metrics metrics{{}};
  AdmissionBoard board;
  std::atomic<bool> stopping = false;
  const config::Config config;
  Context context;
  const net::http::Principal caller{.role = net::http::Role::kTenant, .account = "caller"};

  Refusing() {
    context.config = &config;
    context.clock = &clock;
    context.metrics = &metrics;
    context.board = &board;
    context.stopping = &stopping;
  }
  void throttle() {
    core::sessions::Throttle throttle({.requests_per_second = 1, .burst_seconds = 1});
    ASSERT_FALSE(throttle.arrives(caller.account, 0, clock.now().mono_ms));
    board.set(core::PublishStanding{.tenant_id = caller.account,
                                    .standing = {.throttle = throttle.standing(caller.account), .quota = {}}});
  }
  void fill_queue() {
    core::PublishQueueRoom room;
    const core::PublishQueueRoom::Refusal full{{true, true}, {base::ErrorCode::kQueueFull, "it is full", {}}};
    for (const std::string& whose : {std::string(), caller.account}) room.refusals.emplace(whose, full);
    board.set(std::move(room));
  }
  // The error of each route that refuses now.
  std::map<std::string, std::string> refused() {
    Api api(context);
    std::map<std::string, std::string> out;
    for (const Api::Route& route : all_routes(api)) {
      const auto checked = route.check ? route.check(caller) : base::Result<>();
      if (!checked) out.emplace(name_of(route), checked.error().name());
    }
    return out;
  }
};

// Whatever is asked for.
TEST(OpenApi, NamesWhatIsRefusedOnTheHead) {
  const config::Config config;
  Context context;
  context.config = &config;
  Api api(context);
  for (const Api::Route& route : all_routes(api)) {
    if (route.scope == net::Scope::kOpen) continue;
    expect_named(name_of(route), std::array<std::string_view, 2>{"MISSING_TOKEN", "BAD_TOKEN"});
  }
  using Reason = void (*)(Refusing&);
  constexpr Reason kReasons[] = {[](Refusing& service) { service.throttle(); },
                                 [](Refusing& service) { service.fill_queue(); },
                                 [](Refusing& service) { service.stopping = true; }};
  for (const Reason reason : kReasons) {
    Refusing service;
    reason(service);
    const auto refused = service.refused();
    EXPECT_GT(refused.size(), 15U);
    for (const auto& [operation, code] : refused) expect_named(operation, std::array<std::string_view, 1>{code});
  }
}

// What becomes of a name of a model (tasks::find_model).
constexpr std::string_view kOfModels[] = {"INVALID_PARAMS",   "UNTRUSTED_ARTIFACT", "MODEL_NOT_FOUND", "CONFLICT",
                                          "MODEL_DEPRECATED", "MODEL_INCOMPATIBLE", "POOL_UNREADY"};
// What the core says to a job.
constexpr std::string_view kOfJobs[] = {"DEADLINE_UNMET",   "BUDGET_EXCEEDED",   "QUEUE_FULL",   "QUOTA_EXCEEDED",
                                        "POOL_UNAVAILABLE", "STORE_UNAVAILABLE", "SHUTTING_DOWN"};
// Routes that look for a model and make no job.
constexpr std::string_view kLooksForModel[] = {"POST /v2/tasks/preview",
                                               "POST /v1/tasks/preview",
                                               "POST /v1/messages/count_tokens",
                                               "POST /v1/responses/input_tokens",
                                               "POST /tokenize",
                                               "POST /detokenize",
                                               "POST /apply-template",
                                               "GET /props",
                                               "POST /api/show"};
// Those that make a job: a full queue refuses them, or a task_id that they name may be there already.
std::set<std::string> submissions() {
  Refusing service;
  service.fill_queue();
  std::set<std::string> out{"POST /v2/tasks", "POST /v1/tasks"};
  for (const auto& [operation, code] : service.refused()) {
    if (!operation.ends_with("/batches")) out.insert(operation);  // its jobs come later, and their refusals are lines
  }
  return out;
}

TEST(OpenApi, NamesWhatASubmissionIsRefusedWith) {
  for (const std::string_view operation : kLooksForModel) expect_named(std::string(operation), kOfModels);
  const std::set<std::string> all = submissions();
  EXPECT_GT(all.size(), 15U);
  for (const std::string& operation : all) {
    expect_named(operation, kOfModels);
    expect_named(operation, kOfJobs);
  }
}

// A client that asks for one answer gets the end of a job for it.
TEST(OpenApi, NamesHowAJobMayEnd) {
  std::vector<std::string_view> ends{base::info(base::ErrorCode::kQueueFullDropLru).name};
  constexpr int kOutcomesFrom = 1200, kEnvironmentFrom = 1400;
  for (const base::ErrorInfo& row : base::kErrorTable) {
    const auto number = static_cast<int>(row.code);
    const bool is_end = number >= kOutcomesFrom && number < kEnvironmentFrom;
    if (is_end && row.code != base::ErrorCode::kWorkerBusy) ends.push_back(row.name);  // it is tried again
  }
  std::set<std::string> all = submissions();
  all.erase("POST /v1/tasks");  // is answered before
  for (const Operation& operation : operations()) {
    if (!all.contains(operation.name) || operation.node["responses"]["default"]) continue;
    expect_named(operation.name, ends);
  }
}

// Codes of requests and of admission that are no operation's: any request may get them, or none does.
TEST(OpenApi, EveryCodeOfRequestsAndAdmissionIsSomebodysAnswer) {
  constexpr int kOutcomesFrom = 1200;
  Codes named, unnamed;
  for (const auto& [operation, codes] : codes_by_operation()) named.insert(codes.begin(), codes.end());
  for (const base::ErrorInfo& row : base::kErrorTable) {
    if (static_cast<int>(row.code) < kOutcomesFrom && !named.contains(std::string(row.name)))
      unnamed.insert(std::string(row.name));
  }
  const Codes of_any_request{"METHOD_NOT_ALLOWED", "PAYLOAD_TOO_LARGE", "SERVER_BUSY"};
  const Codes of_no_client{"GPU_UNAVAILABLE", "NON_LOOPBACK_WITHOUT_TOKEN", "VERSION_MISMATCH", "WORKER_NOT_FOUND",
                           "WORKER_UNAVAILABLE"};
  Codes expected = of_any_request;
  expected.insert(of_no_client.begin(), of_no_client.end());
  EXPECT_EQ(unnamed, expected);
}

TEST(OpenApi, EachDocumentSaysWhatAnyRequestMayGet) {
  for (const YAML::Node& document : documents()) {
    const auto text = document["info"]["description"].as<std::string>();
    for (const char* answer : {"INTERNAL", "SERVER_BUSY", "403 FORBIDDEN", "408 INVALID_PARAMS",
                               "413 PAYLOAD_TOO_LARGE", "415 INVALID_PARAMS", "431 PAYLOAD_TOO_LARGE"}) {
      EXPECT_NE(text.find(answer), std::string::npos) << document["info"]["title"].as<std::string>() << ": " << answer;
    }
  }
}

TEST(OpenApi, EveryReferenceResolves) {
  using Walk = std::function<void(const YAML::Node&, const YAML::Node&)>;
  const Walk walk = [&](const YAML::Node& document, const YAML::Node& node) {
    if (node.IsSequence()) {
      for (const auto& item : node) walk(document, item);
    }
    if (!node.IsMap()) return;
    for (const auto& entry : node) {
      if (entry.first.as<std::string>() != "$ref") {
        walk(document, entry.second);
        continue;
      }
      const std::string pointer = entry.second.as<std::string>();
      if (pointer.starts_with("../schema/")) {
        const std::string file = std::string(LLORCH_SOURCE_DIR) + "/contracts/openapi/" + pointer;
        EXPECT_TRUE(std::filesystem::is_regular_file(file)) << pointer;
        continue;
      }
      ASSERT_TRUE(pointer.starts_with("#/")) << pointer;
      EXPECT_TRUE(at_pointer(document, pointer).IsDefined()) << pointer;
    }
  };
  for (const YAML::Node& document : documents()) walk(document, document);
}

}  // namespace
}  // namespace llorch::orchestratord::http
