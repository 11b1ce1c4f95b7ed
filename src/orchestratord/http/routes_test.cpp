// The OpenAPI files and the router say the same.
#include "orchestratord/http/routes.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

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
// What a "#/..." points to in `document`; undefined: to nothing.
YAML::Node at_pointer(const YAML::Node& document, const std::string& pointer) {
  YAML::Node at = YAML::Clone(document);
  for (std::size_t begin = 2; begin < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    at.reset(at[pointer.substr(begin, end - begin)]);
    begin = end + 1;
  }
  return at;
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

// SYS-12.3: every served route is described, and nothing else is.
TEST(OpenApi, DescribesExactlyWhatIsServed) {
  const config::Config config;
  Context context;
  context.config = &config;
  Api api(context);
  std::set<std::string> served, described;
  std::vector<Api::Route> routes = api.routes();
  for (Api::Gateway& gateway : api.gateways({})) std::ranges::move(gateway.routes, std::back_inserter(routes));
  for (const Api::Route& route : routes)
    EXPECT_TRUE(served.insert(std::string(route.method) + " " + std::string(route.pattern)).second) << route.pattern;
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

// SYS-5.5.1: every error code named for an operation is in the table, under the status it is named for.
TEST(OpenApi, ErrorCodesAreThoseOfTheTable) {
  int codes = 0;
  for (const Operation& operation : operations()) {
    for (const auto& response : operation.node["responses"]) {
      const YAML::Node reference = response.second["$ref"];
      const YAML::Node described =
          reference ? at_pointer(operation.document, reference.as<std::string>()) : response.second;
      for (const auto& code : described["x-error-codes"]) {
        const auto known = base::error_code_from_name(code.as<std::string>());
        ASSERT_TRUE(known) << code.as<std::string>();
        EXPECT_EQ(std::to_string(base::info(*known).http_status), response.first.as<std::string>()) << operation.name;
        ++codes;
      }
    }
  }
  EXPECT_GT(codes, 20);
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
